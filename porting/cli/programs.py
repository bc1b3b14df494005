"""Loading of `PROGRAM:FUNCTION`: a function of a user's program that gives a model, its loss and a batch."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, List, Mapping, NoReturn, Optional, Tuple

import torch
from torch import nn

from porting import models
from porting.diagnostics import ExecutableError, Place, PortingError, find_raising_frame
from porting.options import PortOptions
from porting.structure import flatten_tensors, map_tensors

__all__ = ["LoadedProgram", "ProgramName", "is_reference_model", "load_program", "load_value"]

_FORM = "file.py:name`, `package.module:name` or `family:size"
_PARTS = ("model", "loss", "batch", "optimizer", "options")
_REFERENCE_SAMPLES = 8
_EXAMPLE = (
    "return `(model, loss, batch)`, where `batch` is `(input, ..., labels)`; an optimizer and `PortOptions` may follow",
    "a dictionary or an object with these names does as well",
)


@dataclass(frozen=True)
class LoadedProgram:
    """A model that can be ported: what `to_ipu` takes, and the arguments of one micro-batch.

    `batch` holds the positional arguments of a call, labels last. `loss` is None for a model that returns its own.
    `name` is the text that it was loaded by, `made` what was found under it or what the function there returned, which
    was called with the keywords `call`; None where it is no function.
    """

    model: nn.Module
    loss: Any
    batch: Tuple[Any, ...]
    optimizer: Optional[torch.optim.Optimizer] = None
    options: Optional[PortOptions] = None
    name: str = ""
    made: Any = None
    call: Optional[Mapping[str, Any]] = None

    @property
    def rows(self) -> int:
        """The samples of `batch`: the rows of its first tensor that has any, 1 when there is none."""
        return next((tensor.shape[0] for tensor in flatten_tensors(self.batch) if tensor.dim()), 1)

    def batch_of(self, rows: int) -> Tuple[Any, ...]:
        """Return `batch` with `rows` samples: cut, or repeated from the start.

        Tensors without samples (scalars, and those with another number of rows) stay as they are.
        """
        present = self.rows
        indices = torch.arange(rows) % present

        def resize(tensor: torch.Tensor) -> torch.Tensor:
            has_samples = tensor.dim() > 0 and tensor.shape[0] == present
            return tensor.index_select(0, indices) if has_samples and rows != present else tensor

        return tuple(map_tensors(resize, self.batch))


@dataclass(frozen=True)
class ProgramName:
    """A `PROGRAM:FUNCTION` taken apart, before anything of it is loaded.

    >>> ProgramName.of("examples/train.py:make")
    ProgramName(source='examples/train.py', attribute='make')
    >>> ProgramName.of("package.train:make").is_file
    False
    """

    source: str
    attribute: str

    @classmethod
    def of(cls, text: str) -> ProgramName:
        """Take `text` apart; raise ExecutableError E020 if it has another form."""
        source, _, attribute = text.rpartition(":")
        if not source or not all(part.isidentifier() for part in attribute.split(".")):
            _refuse_form(text)
        return cls(source, attribute)

    @property
    def is_file(self) -> bool:
        """Whether a file is meant, and not a module."""
        return self.source.endswith(".py") or os.sep in self.source or "/" in self.source


def load_program(text: str, *, batch_size: Optional[int] = None) -> LoadedProgram:
    """Load the model, loss and batch that `text` stands for, as in `train.py:make` or `package.train:make`.

    The name is that of a function that gives `(model, loss, batch)`, and if need be an optimizer and `PortOptions`, or
    of such a tuple, a dictionary or an object with these attributes. A function with a parameter called `batch_size` or
    `batch` gets `batch_size` when it is given; the batch of any other is cut or repeated to that size. The folder of a
    file, or the present folder for a module, comes first in `sys.path`, as for a script.

    `gpt:gpt2_small` is the reference model of that family and size, with its loss and random samples.

    Raises ExecutableError: E020 when there is no such file, module or name, E021 when the user's code fails, E022
    when it gives something else.
    """
    outline = ProgramName.of(text)
    if is_reference_model(outline):
        return _build_reference_model(outline, text, batch_size)
    module, place = _load_module(text, outline)
    found = _look_up(module, outline, text, place)
    place = _find_place(found) or place
    call = _choose_keywords(found, text, batch_size, place)
    made = found if call is None else _run_user_code(text, lambda: found(**call))
    program = replace(_read_parts(made, text, place), made=made, call=call)
    if batch_size is not None and batch_size != program.rows:
        program = replace(program, batch=program.batch_of(batch_size))
    return program


def load_value(text: str) -> Any:
    """Load what `text` names: the value, or what it returns if it is a function; raises as `load_program` does."""
    outline = ProgramName.of(text)
    module, place = _load_module(text, outline)
    found = _look_up(module, outline, text, place)
    return _run_user_code(text, found) if inspect.isroutine(found) else found


def is_reference_model(outline: ProgramName) -> bool:
    """Tell whether a family of `porting.models` and one of its sizes are meant.

    >>> is_reference_model(ProgramName.of("mlp:mushrooms")), is_reference_model(ProgramName.of("mlp:make"))
    (True, False)
    """
    is_family = not outline.is_file and outline.source in models.FAMILIES
    return is_family and outline.attribute in models.load(outline.source).VARIANTS


def _build_reference_model(outline: ProgramName, text: str, batch_size: Optional[int]) -> LoadedProgram:
    family = models.load(outline.source)
    batch = family.example_batch(family.VARIANTS[outline.attribute], batch_size=batch_size or _REFERENCE_SAMPLES)
    return LoadedProgram(family.build(outline.attribute), family.loss, batch, name=text)


# -- loading -----------------------------------------------------------------------------------------------------------


def _load_module(text: str, outline: ProgramName) -> Tuple[ModuleType, Optional[Place]]:
    if not outline.is_file:
        _put_folder_first(os.getcwd())
        _refuse_missing_module(text, outline.source)
        return _run_user_code(text, lambda: importlib.import_module(outline.source)), None
    path = Path(outline.source)
    if not path.is_file():
        raise ExecutableError.of("E020", message=f"there is no file `{path}`", help=_suggest_file(path))
    _put_folder_first(str(path.resolve().parent))
    return _run_user_code(text, lambda: _load_file(path.resolve())), Place(str(path), 1)


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


def _put_folder_first(folder: str) -> None:
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def _refuse_missing_module(text: str, name: str) -> None:
    """Tell a module that is not there from one that cannot import another."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{name}.".startswith(f"{error.name}."):
            _raise_failure(text, error)
        found = None
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise ExecutableError.of(
            "E020",
            message=f"there is no module `{name}`",
            notes=f"looked for from the folder {os.getcwd()}",
            help=(*_list_sizes(name), "name a file instead, as in `folder/train.py:make`"),
        )


def _list_sizes(name: str) -> Tuple[str, ...]:
    if name not in models.FAMILIES:
        return ()
    sizes = ", ".join(f"`{name}:{size}`" for size in models.load(name).VARIANTS)
    return (f"the reference models of that name are {sizes}",)


def _run_user_code(text: str, run: Any) -> Any:
    """Run the user's code; what it raises becomes E021, except findings of this package and an interrupt."""
    try:
        return run()
    except (PortingError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        _raise_failure(text, error, "keep what starts the program under `if __name__ == '__main__':`")
    except Exception as error:
        _raise_failure(text, error)


def _raise_failure(text: str, error: BaseException, remedy: str = "") -> NoReturn:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    raise ExecutableError.of(
        "E021",
        message=f"loading `{text}` failed: {what}",
        place=_find_error_place(error),
        label=f"raises {type(error).__name__}",
        help=remedy or "make it run by itself first: `python -c` with this file's folder as the present one",
    ) from error


def _find_error_place(error: BaseException) -> Optional[Place]:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Place(error.filename, error.lineno)
    raised = find_raising_frame(error)
    return raised[1] if raised is not None else None


def _look_up(module: ModuleType, outline: ProgramName, text: str, place: Optional[Place]) -> Any:
    value: Any = module
    for part in outline.attribute.split("."):
        if not hasattr(value, part):
            names = [name for name in vars(value) if not name.startswith("_")] if hasattr(value, "__dict__") else []
            raise ExecutableError.of(
                "E020",
                message=f"`{outline.source}` has no `{part}`",
                place=place,
                help=_suggest_name(part, names, module),
            )
        value = getattr(value, part)
    return value


def _suggest_name(wanted: str, names: List[str], module: ModuleType) -> str:
    near = difflib.get_close_matches(wanted, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    defined = _list_functions(module)
    if defined:
        return f"name one of its functions: {', '.join(defined)}"
    return "define a function of that name that returns `(model, loss, batch)`"


def _list_functions(module: ModuleType) -> List[str]:
    """List the functions that the file of `module` defines at its top level."""
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py"):
        return []
    tree = ast.parse(Path(file).read_bytes())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def _suggest_file(path: Path) -> str:
    folder = path.parent
    names = [file.stem for file in folder.glob("*.py")] if folder.is_dir() else []
    near = difflib.get_close_matches(path.stem, names, n=1)
    return f"did you mean `{folder / near[0]}.py`?" if near else f"give it as `{_FORM}`"


def _refuse_form(text: str) -> NoReturn:
    remedy = f"give it as `{_FORM}`"
    if text.endswith(".py") and Path(text).is_file():
        remedy = f"name the function in it that returns `(model, loss, batch)`: `{text}:NAME`"
    raise ExecutableError.of("E020", message=f"`{text}` does not say what to take from where", help=remedy)


# -- making and reading ------------------------------------------------------------------------------------------------


def _choose_keywords(
    found: Any, text: str, batch_size: Optional[int], place: Optional[Place]
) -> Optional[Mapping[str, Any]]:
    """Return how to call `found`, with the batch size if it takes one; None if it makes no parts."""
    is_value = isinstance(found, (tuple, list, Mapping, nn.Module)) or not callable(found)
    if is_value or (not inspect.isclass(found) and hasattr(found, "model") and hasattr(found, "batch")):
        return None
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # a function without a signature, written in C
        parameters = ()  # type: ignore[assignment]
    named = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    size_name = next((name for name in ("batch_size", "batch") if name in named), None)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    is_sized = size_name is not None and batch_size is not None
    keywords: Mapping[str, Any] = {str(size_name): batch_size} if is_sized else {}
    missing = [name for name in needed if name not in keywords]
    if missing:
        remedy = "say how many samples a batch has: `--batch N`" if missing == [size_name] else "give them defaults"
        raise ExecutableError.of(
            "E022",
            message=f"`{text}` needs arguments: {', '.join(missing)}",
            place=place,
            help=remedy,
        )
    return keywords


def _read_parts(made: Any, text: str, place: Optional[Place]) -> LoadedProgram:
    if isinstance(made, (tuple, list)) and not hasattr(made, "_fields"):
        if not 3 <= len(made) <= len(_PARTS):
            _refuse_parts(text, f"{len(made)} values", place)
        values = dict(zip(_PARTS, made))
    elif isinstance(made, nn.Module) or made is None:
        _refuse_parts(text, f"a {type(made).__name__}", place)
    else:
        get = made.get if isinstance(made, Mapping) else lambda name: getattr(made, name, None)
        values = {name: get(name) for name in _PARTS}
        absent = [name for name in ("model", "batch") if values[name] is None]
        if absent:
            _refuse_parts(text, f"a {type(made).__name__} without {' and '.join(absent)}", place)
    return _check_parts(values, text, place)


def _check_parts(values: Any, text: str, place: Optional[Place]) -> LoadedProgram:
    batch = values["batch"]
    batch = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    expected = {
        "model": ("a torch.nn.Module", isinstance(values["model"], nn.Module)),
        "loss": (
            "a module, a function, a mapping of them, or None",
            values["loss"] is None or callable(values["loss"]) or isinstance(values["loss"], Mapping),
        ),
        "batch": ("tensors: `(inputs, labels)`", bool(flatten_tensors(batch))),
        "optimizer": (
            "a torch.optim.Optimizer, or None",
            isinstance(values.get("optimizer"), (torch.optim.Optimizer, type(None))),
        ),
        "options": ("porting.PortOptions, or None", isinstance(values.get("options"), (PortOptions, type(None)))),
    }
    wrong = next((name for name, (_, is_right) in expected.items() if not is_right), None)
    if wrong is not None:
        raise ExecutableError.of(
            "E022",
            message=f"the {wrong} of `{text}` is a {type(values[wrong]).__name__}, not {expected[wrong][0]}",
            place=place,
            help=_EXAMPLE,
        )
    return LoadedProgram(values["model"], values["loss"], batch, values.get("optimizer"), values.get("options"), text)


def _refuse_parts(text: str, what: str, place: Optional[Place]) -> NoReturn:
    raise ExecutableError.of("E022", message=f"`{text}` gives {what}", place=place, help=_EXAMPLE)


def _find_place(found: Any) -> Optional[Place]:
    if inspect.isclass(found):
        try:
            return Place(inspect.getfile(found), inspect.findsource(found)[1] + 1)
        except (OSError, TypeError):  # a class without a source, written in C
            return None
    code = getattr(inspect.unwrap(found) if callable(found) else found, "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code is not None else None
