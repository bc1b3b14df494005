"""Load `PROGRAM:FUNCTION`, a function of a user's program that gives a model, its loss and a batch.

All verbs that take a program use it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from torch import nn

from porting.cli.part_places import collect_part_places
from porting.cli.program_parts import LoadedProgram, read_parts
from porting.diagnostics import (
    ExecutableError,
    Place,
    PortingError,
    find_raising_frame,
    join_names,
    suggest_file,
    suggest_name,
)
from porting.support.wings import find_wing

__all__ = ["LoadedProgram", "ProgramName", "is_reference_model", "load_program", "load_value"]

_FORM = "file.py:name`, `package.module:name` or `family:size"
_REFERENCE_SAMPLES = 8


@dataclass(frozen=True)
class ProgramName:
    """The parts of a `PROGRAM:FUNCTION`, before anything of it is loaded.

    >>> ProgramName.of("examples/train.py:make")
    ProgramName(source='examples/train.py', attribute='make')
    >>> ProgramName.of("package.train:make").is_file
    False
    """

    source: str
    attribute: str

    @classmethod
    def of(cls, text: str) -> ProgramName:
        """Split `text`; raises ExecutableError E020 if it has another form."""
        source, _, attribute = text.rpartition(":")
        if source and all(part.isidentifier() for part in attribute.split(".")):
            return cls(source, attribute)
        remedy = f"give it as `{_FORM}`"
        if text.endswith(".py") and Path(text).is_file():
            remedy = f"name the function in it that returns `(model, loss, batch)`: `{text}:NAME`"
        raise ExecutableError.of("E020", message=f"`{text}` does not say what to take from where", help=remedy)

    def __str__(self) -> str:
        return f"{self.source}:{self.attribute}"

    @property
    def is_file(self) -> bool:
        """Whether a file is meant, and not a module."""
        return self.source.endswith(".py") or os.sep in self.source or "/" in self.source


def load_program(
    text: str, *, batch_size: Optional[int] = None, layers: Optional[int] = None, draws_batch: bool = False
) -> LoadedProgram:
    """Load the model, loss and batch that `text` names, as in `train.py:make` or `package.train:make`.

    The name is that of a function that gives `(model, loss, batch)`, and if need be an optimizer and `PortOptions`, or
    of such a tuple, a dictionary or an object with these attributes. A function with a parameter called `batch_size` or
    `batch` gets `batch_size` when it is given; the batch of any other is cut or repeated to that size. One with a
    parameter called `layers` gets `layers`, and no other can have that many. The folder of a file, or the present
    folder for a module, comes first in `sys.path`, as for a script. With `draws_batch`, the first batch of a loader
    takes the place of a batch that is missing.

    `gpt:gpt2_small` is the reference model of that family and size, with its loss and random samples.

    Raises ExecutableError: E020 when there is no such file, module or name, E021 when the user's code fails, E022
    when it returns something else.
    """
    name = ProgramName.of(text)
    family = _find_family(name)
    if family is not None and name.attribute in family.VARIANTS:
        if layers is not None:
            raise _make_layers_error(name, None)
        batch = family.example_batch(family.VARIANTS[name.attribute], batch_size=batch_size or _REFERENCE_SAMPLES)
        return LoadedProgram(family.build(name.attribute), family.loss, batch, name=text)
    found, place = _load_named(name)
    call = _choose_keywords(found, name, place, batch_size=batch_size, layers=layers)
    made = found if call is None else _run_user_code(name, lambda: found(**call))
    read = _run_user_code(name, lambda: read_parts(made, str(name), place, draws_batch=draws_batch))
    program = replace(read, made=made, call=call, places=collect_part_places(found, place))
    if batch_size is not None and batch_size != program.rows:
        program = replace(program, batch=program.batch_of(batch_size))
    return program


def load_value(target: str) -> Any:
    """Load the value that `target` names, such as a dataset; a function is called and its result returned.

    Raises as `load_program` does.
    """
    name = ProgramName.of(target)
    found, _place = _load_named(name)
    return _run_user_code(name, found) if inspect.isroutine(found) else found


def is_reference_model(name: ProgramName) -> bool:
    """Tell whether a family of `porting.models` and one of its sizes are meant.

    >>> is_reference_model(ProgramName.of("mlp:mushrooms")), is_reference_model(ProgramName.of("mlp:make"))
    (True, False)
    """
    family = _find_family(name)
    return family is not None and name.attribute in family.VARIANTS


def _find_family(name: ProgramName) -> Any:
    """Find the family of reference models that `name` may mean; None without the models' wing."""
    models = find_wing("porting.models")
    return None if models is None or name.is_file or name.source not in models.FAMILIES else models.load(name.source)


# -- loading -----------------------------------------------------------------------------------------------------------


def _load_named(name: ProgramName) -> Tuple[Any, Optional[Place]]:
    """Return the named object and its place, where it has one."""
    module, place = _load_module(name)
    value: Any = module
    for part in name.attribute.split("."):
        if not hasattr(value, part):
            message = f"`{name.source}` has no `{part}`"
            raise ExecutableError.of("E020", message=message, place=place, help=_suggest_name(part, value, module))
        value = getattr(value, part)
    if inspect.isclass(value):
        try:
            place = Place(inspect.getfile(value), inspect.findsource(value)[1] + 1)
        except (OSError, TypeError):  # a class without a source, written in C
            pass
    else:
        code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
        place = place if code is None else Place(code.co_filename, code.co_firstlineno)
    return value, place


def _load_module(name: ProgramName) -> Tuple[ModuleType, Optional[Place]]:
    path = Path(name.source)
    folder = str(path.resolve().parent) if name.is_file else os.getcwd()
    if name.is_file and not path.is_file():
        remedy = suggest_file(path, otherwise=f"write the file, or name another: it is looked for in `{folder}`")
        raise ExecutableError.of("E020", message=f"there is no file `{path}`", help=remedy)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    if name.is_file:
        return _run_user_code(name, lambda: _load_file(path.resolve())), Place(str(path), 1)
    _require_module(name)
    return _run_user_code(name, lambda: importlib.import_module(name.source)), None


def _load_file(path: Path) -> ModuleType:
    """Run a file as a module of its own name, so that classes in it can be found, pickled and imported."""
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    name = path.stem if loaded is None and path.stem.isidentifier() else f"_porting_program_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _require_module(name: ProgramName) -> None:
    """Tell a module that is not there from one that cannot import another."""
    found = None
    try:
        found = importlib.util.find_spec(name.source)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{name.source}.".startswith(f"{error.name}."):
            raise _make_failure(name, error) from error
    except (ImportError, ValueError):
        pass
    if found is None:
        remedies = [*_suggest_model(name), "name a file instead, as in `folder/train.py:make`"]
        raise ExecutableError.of(
            "E020",
            message=f"there is no module `{name.source}`",
            notes=f"looked for from the folder {os.getcwd()}",
            help=remedies,
        )
    if found.origin is None:  # a namespace package: a folder without `__init__.py`
        raise ExecutableError.of(
            "E020",
            message=f"`{name.source}` is a folder and no program",
            help=f"name the file in it: `{name.source.replace('.', '/')}/FILE.py:{name.attribute}`",
        )


def _suggest_model(name: ProgramName) -> List[str]:
    """Suggest the reference model that was probably meant, or those of its family."""
    family = _find_family(name)
    if family is None:
        models = find_wing("porting.models")
        near = "" if models is None else suggest_name(name.source, models.FAMILIES)
        return [f"of reference models, {near}"] if near else []
    sizes = [f"{name.source}:{size}" for size in family.VARIANTS]
    return [suggest_name(str(name), sizes), f"the reference models of that name are {join_names(sizes)}"]


def _run_user_code(name: ProgramName, run: Callable[[], Any]) -> Any:
    """Run the user's code; its errors become E021, except findings of this package and an interrupt."""
    try:
        return run()
    except (PortingError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        raise _make_failure(name, error) from error


def _make_failure(name: ProgramName, error: BaseException) -> ExecutableError:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    remedy = "make it run by itself first: `python -c` with this file's folder as the present one"
    if isinstance(error, SystemExit):
        remedy = "keep what starts the program under `if __name__ == '__main__':`"
    raised = find_raising_frame(error)
    place = raised[1] if raised is not None else None
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        place = Place(error.filename, error.lineno)
    return ExecutableError.of(
        "E021",
        message=f"loading `{name}` failed: {what}",
        place=place,
        label=f"raises {type(error).__name__}",
        help=remedy,
    )


def _suggest_name(wanted: str, owner: object, module: ModuleType) -> str:
    """Suggest a name of `owner` that is like `wanted`, or the functions at the top level of the file of `module`."""
    names = [name for name in getattr(owner, "__dict__", {}) if not name.startswith("_")]
    near = suggest_name(wanted, names)
    if near:
        return near
    file = getattr(module, "__file__", None) or ""
    body = ast.parse(Path(file).read_bytes()).body if file.endswith(".py") else []
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    if defined:
        return f"name one of its functions: {', '.join(defined)}"
    return "define a function of that name that returns `(model, loss, batch)`"


# -- making ----------------------------------------------------------------------------------------------------------


def _choose_keywords(
    found: Callable[..., Any],
    name: ProgramName,
    place: Optional[Place],
    *,
    batch_size: Optional[int],
    layers: Optional[int],
) -> Optional[Mapping[str, Any]]:
    """Return how to call `found`, with the batch size if it takes one; None if it makes no parts."""
    named, needed = _list_parameters(found)
    if layers is not None and "layers" not in named:
        raise _make_layers_error(name, place)
    is_value = isinstance(found, (tuple, list, Mapping, nn.Module)) or not callable(found)
    if is_value or (not inspect.isclass(found) and hasattr(found, "model") and hasattr(found, "batch")):
        return None
    size_name = next((size for size in ("batch_size", "batch") if size in named), None)
    is_sized = size_name is not None and batch_size is not None
    keywords: Dict[str, Any] = {str(size_name): batch_size} if is_sized else {}
    keywords.update({} if layers is None else {"layers": layers})
    missing = [parameter for parameter in needed if parameter not in keywords]
    if missing:
        message = f"`{name}` needs arguments: {', '.join(missing)}"
        remedy = "say how many samples a batch has: `--batch N`" if missing == [size_name] else "give them defaults"
        raise ExecutableError.of("E022", message=message, place=place, help=remedy)
    return keywords


def _make_layers_error(name: ProgramName, place: Optional[Place]) -> ExecutableError:
    return ExecutableError.of(
        "E022",
        message=f"`{name}` cannot be asked for a number of layers",
        place=place,
        help="name a function with a parameter `layers` that makes a model of so many",
    )


def _list_parameters(found: Callable[..., Any]) -> Tuple[Set[str], List[str]]:
    """List the parameters that a call can name, and those that have to be given; none for what is no function."""
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):  # a value, or a function without a signature, written in C
        return set(), []
    named = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return named, needed
