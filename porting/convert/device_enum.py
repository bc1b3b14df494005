"""Give an enum of compute modes its member for the IPU, where a project's configuration chooses its device by one.

The project then asks for a port in its own words: `self.args.run.compute_mode == ComputeMode.IPU`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Tuple

from porting.convert.device_option import DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.names import get_root
from porting.convert.program import Program
from porting.convert.trees import ProgramFile, list_bases, list_targets, write_node

__all__ = ["DeviceEnum", "find_enum"]

_ENUMS = ("Enum", "IntEnum", "StrEnum")
_ACCELERATORS = ("GPU", "CUDA", "XPU", "DPCPP", "HPU", "MPS", "TPU")
_TELLS = ("hydra", "omegaconf", 'split("=', 'partition("=', "split('=", "partition('=")


@dataclass(frozen=True, eq=False)
class DeviceEnum:
    """An enum of devices, and how the program compares with it in each of its files."""

    file: ProgramFile
    members: Dict[str, ast.Assign]
    comparisons: List[Tuple[ProgramFile, ast.Compare]]

    def test_at(self, file: ProgramFile, place: ast.AST) -> str:
        """Return the test that tells a port at a place, in the words of its file; empty where none would hold there."""
        around, function = file.find_class(place), file.find_function(place)
        texts: Counter[str] = Counter()
        for other, one in self.comparisons:
            is_own = get_root(one.left) == "self" and around is not None and other.find_class(one) is around
            is_global = other.find_function(one) is function
            if other is file and (is_own or is_global):
                texts[f"{write_node(one.left)} == {get_root(one.comparators[0])}.IPU"] += 1
        return texts.most_common(1)[0][0] if texts else ""

    def find_option(self, program: Program, test: str) -> Optional[DeviceOption]:
        """Find the option that chooses the device by this enum; None where its words are not known."""
        path = test.partition(" ==")[0].split(".")
        path = path[1:] if path[0] == "self" else path
        gpu = next(name for name in _ACCELERATORS if name in self.members)
        names = {"ipu": "IPU", "sim": "IPU", "cpu": "CPU", "cuda": gpu}
        given = [one for call in program.facts.list_methods("add_argument") for one in call.node.args]
        flags = [str(one.value) for one in given if isinstance(one, ast.Constant)]
        flag = next((one for one in flags if one.lstrip("-").replace("-", "_") == path[-1]), "")
        if flag:
            return DeviceOption(flag, test, device="", words={one: (flag, name) for one, name in names.items()})
        if len(path) > 1 and any(tell in file.unit.text for file in program.files.values() for tell in _TELLS):
            key = ".".join(path[1:])
            words = {one: (f"{key}={name}",) for one, name in names.items()}
            return DeviceOption(key, test, device="", words=words)
        return None

    def add_member(self, edits: FileEdits) -> None:
        """Plan the edit that adds the member, with the next value and written as the last one."""
        if "IPU" in self.members:
            return
        last = list(self.members.values())[-1]
        values = [getattr(one.value, "value", None) for one in self.members.values()]
        numbers = [one for one in values if isinstance(one, int)]
        if len(numbers) == len(values):
            value = str(max(numbers) + 1)
        elif isinstance(values[-1], str):
            value = '"IPU"' if values[-1].isupper() else '"ipu"'
        else:
            value = write_node(last.value)
        line = self.file.unit.text.splitlines()[last.lineno - 1]
        before = re.match(r"\s*(\w+\s*)=(\s*)", line)
        name, gap = (before[1], before[2]) if before else ("IPU ", " ")
        why = "the configuration's devices have the IPU; the numbers of the others stay"
        edits.insert_after(last, f"{'IPU'.ljust(len(name))}={gap}{value}", "enum", why)


def find_enum(program: Program) -> Optional[DeviceEnum]:
    """Find the enum that a program chooses its device by; None without one, and where its members are no constants."""
    for file, node in program.iter_nodes(ast.ClassDef):
        if {*list_bases(node)} & {*_ENUMS}:
            assigned = [one for one in node.body if isinstance(one, ast.Assign) and len(one.targets) == 1]
            members = {list_targets(one)[0]: one for one in assigned}
            has_devices = "CPU" in members and {name.upper() for name in members} & {*_ACCELERATORS}
            comparisons = list(_iter_comparisons(program, node.name)) if has_devices and _are_plain(members) else []
            if comparisons:
                return DeviceEnum(file, members, comparisons)
    return None


def _are_plain(members: Dict[str, ast.Assign]) -> bool:
    values = [one.value for one in members.values()]
    autos = [isinstance(one, ast.Call) and write_node(one.func).endswith("auto") for one in values]
    kinds = {type(one.value) for one in values if isinstance(one, ast.Constant)}
    return all(autos) or not any(autos) and len(kinds) == 1 and kinds <= {int, str}


def _iter_comparisons(program: Program, name: str) -> Iterator[Tuple[ProgramFile, ast.Compare]]:
    for file, node in program.iter_nodes(ast.Compare):
        other = node.comparators[0]
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.Is)) and isinstance(other, ast.Attribute):
            if write_node(other.value) == name and get_root(node.left):
                yield file, node
