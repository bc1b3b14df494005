"""Plan the smallest port: each model that is trained runs on the device, and the loop, its loss and optimizer stay.

Three lines for a model: the import, the choice of the device, and `to_ipu(model, loop="host")` where its name is bound.
"""

from __future__ import annotations

import ast
from typing import Dict, Iterable, List, Optional, Set, Tuple

from porting.convert.bindings import Binding, Undecided, list_bindings
from porting.convert.device_option import WHY_ENVIRONMENT, DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.program import Found, Program
from porting.convert.sites import Role
from porting.convert.trees import ProgramFile, list_targets

__all__ = ["MOST_SHAPES", "import_guarded", "port_models"]

MOST_SHAPES = 8
"""How many shapes of batches a port is compiled for; the last batch of an epoch may be a shorter one."""

_GUARDED_IMPORT = """
try:
    from {module} import {names}
except ImportError:  # without ipu-porting the program trains as before
    {nothing}
"""
_WHY_IMPORT = "without ipu-porting the program trains as before"
_WHY_MODEL = "forward and backward pass run on the device; loss and optimizer stay in the loop"
_WHY_CALLS = "calls of the model, and of its parts, run on the device; loss and optimizer stay in the loop"


def import_guarded(file: FileEdits, names: Iterable[str], module: str = "porting") -> None:
    """Plan the import of names of this package, without which the program is as before."""
    ordered = sorted(names)
    nothing = " = ".join([*ordered, "None"])
    if "PortedModel" in ordered:  # of which nothing is an instance then
        values = ["()" if name == "PortedModel" else "None" for name in ordered]
        nothing = f"{', '.join(ordered)} = {', '.join(values)}"
    code = _GUARDED_IMPORT.format(module=module, names=", ".join(ordered), nothing=nothing)
    file.add_import(code, why=_WHY_IMPORT)


def port_models(program: Program, option: DeviceOption, edits: Dict[str, FileEdits]) -> List[Undecided]:
    """Plan the edits that let each model of the program's training run on the device; return what is left.

    A model that has no name of its own in the loop, or whose parts are called one by one, stays the object that it is,
    and its calls go to the device from where it is made.
    """
    left: List[Undecided] = []
    bindings, unnamed = _choose_bindings(program)
    for binding in bindings:
        settings = f'loop="host", options=PortOptions(max_executables={MOST_SHAPES}), device={option.device}'
        code = f"if {option.test}:\n    {binding.name} = to_ipu({binding.name}, {settings})"
        _insert(edits[binding.file.path], binding, code, _WHY_MODEL)
        import_guarded(edits[binding.file.path], ["PortOptions", "to_ipu"])
    made: Set[ast.stmt] = set()
    for found, undecided in unnamed:
        places = [_bind_making(file, statement) for file, statement in program.iter_makings(found.call)]
        named = [one for one in places if one is not None]
        left += [] if named and len(named) == len(places) else [undecided]
        for binding in named:
            if binding.anchor not in made:
                made.add(binding.anchor)
                code = f"if {option.test}:\n    DeviceCalls({binding.name}, device={option.device}).install()"
                _insert(edits[binding.file.path], binding, code, _WHY_CALLS)
                import_guarded(edits[binding.file.path], ["DeviceCalls"], "porting.integrations")
    if not bindings and not made and not left:
        reason = "no call of a model with gradients was found"
        left.append(Undecided(program.main.path, 1, reason, "name the script that trains"))
    return left


def _insert(file: FileEdits, binding: Binding, code: str, why: str) -> None:
    insert = file.insert_after if binding.before is None else file.insert_before
    insert(binding.anchor, code, "port", why)
    file.add_import("import os", why=WHY_ENVIRONMENT)


def _bind_making(file: ProgramFile, statement: ast.stmt) -> Optional[Binding]:
    """Bind what a statement makes, where it gives it one name."""
    targets = list_targets(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else []
    return Binding(file, targets[0], after=statement) if len(targets) == 1 else None


def _choose_bindings(program: Program) -> Tuple[List[Binding], List[Tuple[Found, Undecided]]]:
    """Choose one binding for each name that holds a trained model, the earliest; and list the sites without one."""
    chosen: Dict[Tuple[str, str, int], Binding] = {}
    undecided: List[Tuple[Found, Undecided]] = []
    whole: Set[str] = set()
    for found in program.list_sites(Role.FORWARD):
        for one in list_bindings(program, found.file, found.call):
            if isinstance(one, Undecided):
                undecided.append((found, one))
            else:
                whole.add(found.site.name.rpartition(".")[2])
                if one.key not in chosen or one.anchor.lineno < chosen[one.key].anchor.lineno:
                    chosen[one.key] = one
    # a part that is called beside the whole model, as a decoder that draws samples, is none of its training
    return list(chosen.values()), [pair for pair in undecided if pair[1].part_of not in whole]
