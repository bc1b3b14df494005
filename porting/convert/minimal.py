"""Plan the smallest port: each model that is trained runs on the device, and the loop, its loss and optimizer stay.

Three lines for a model: the import, the choice of the device, and `to_ipu(model, loop="host")` where its name is bound.
"""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from porting.convert.bindings import Binding, Undecided, find_bindings
from porting.convert.device_option import DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.program import Program
from porting.convert.sites import Role

__all__ = ["GUARDED_IMPORT", "port_models"]

GUARDED_IMPORT = """
try:
    from porting import to_ipu
except ImportError:  # without ipu-porting the program trains as before
    to_ipu = None
"""


def port_models(program: Program, option: DeviceOption, edits: Dict[str, FileEdits]) -> List[Undecided]:
    """Plan the edits that let each model of the program's training run on the device; return what is left."""
    left: List[Undecided] = []
    bindings = _choose_bindings(program, left)
    if not bindings and not left:
        left.append(
            Undecided(
                program.main.path, 1, "no call of a model with gradients was found", "name the script that trains"
            )
        )
    for binding in bindings:
        code = f'if {option.test}:\n    {binding.name} = to_ipu({binding.name}, loop="host")'
        file = edits[binding.file.path]
        why = "forward and backward pass run on the device; loss and optimizer stay in the loop"
        if binding.before is not None:
            file.insert_before(binding.before, code, "port", why)
        elif binding.after is not None:
            file.insert_after(binding.after, code, "port", why)
        file.add_import(GUARDED_IMPORT, why="without ipu-porting the program trains as before")
        file.add_import("import os", why="the choice of the device is kept in the environment")
    return left


def _choose_bindings(program: Program, left: List[Undecided]) -> List[Binding]:
    """Choose one binding for each name that holds a trained model: the earliest."""
    chosen: Dict[Tuple[str, str, int], Binding] = {}
    undecided: Dict[Undecided, None] = {}
    whole: Set[str] = set()
    for found in program.list_sites(Role.FORWARD):
        for one in find_bindings(program, found.file, found.call):
            if isinstance(one, Undecided):
                undecided[one] = None
            else:
                whole.add(found.site.name.rpartition(".")[2])
                if one.key not in chosen or _get_line(one) < _get_line(chosen[one.key]):
                    chosen[one.key] = one
    # a part that is called beside the whole model, as a decoder that draws samples, is none of its training
    left += [one for one in undecided if one.part_of not in whole]
    return list(chosen.values())


def _get_line(binding: Binding) -> int:
    anchor = binding.before or binding.after
    return 0 if anchor is None else anchor.lineno
