"""Hold what becomes of a program for several instances: its edits, what is left, and what there is to know besides.

Each edit is a choice by the device, so that nothing changes without one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Set

from porting.convert.bindings import Undecided
from porting.convert.device_option import WHY_ENVIRONMENT, DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.minimal import import_guarded
from porting.convert.program import Program
from porting.convert.trees import ProgramFile
from porting.source.facts import Call

__all__ = ["Sharing"]

_WHY_FIRST = "the first instance writes for all"


@dataclass
class Sharing:
    """A program that several instances are to train, with the edits of its files."""

    program: Program
    option: DeviceOption
    edits: Dict[str, FileEdits]
    left: List[Undecided] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)

    @property
    def others(self) -> str:
        """The test that is true in all instances of a port but the first."""
        return f"{self.option.test} and this_instance().index != 0"

    @property
    def several(self) -> str:
        """The test that is true where a port has several instances."""
        return f"{self.option.test} and this_instance().size > 1"

    def iter_calls(self) -> Iterator[Call]:
        """Iterate over the calls in the program's files, each once."""
        seen: Set[ast.Call] = set()
        for call in self.program.facts.calls:
            if call.node not in seen and self.program.find_file(call.where.file) is not None:
                seen.add(call.node)
                yield call

    def find_file(self, call: Call) -> ProgramFile:
        """Find the file of one of these calls."""
        file = self.program.find_file(call.where.file)
        assert file is not None
        return file

    def leave(self, call: Call, reason: str, remedy: str) -> None:
        """Leave a call to a person."""
        self.left.append(Undecided(call.where.file, call.node.lineno, reason, remedy))

    def require(self, file: ProgramFile, *names: str, module: str = "porting") -> None:
        """Plan the imports that an edit needs."""
        import_guarded(self.edits[file.path], names, module)
        self.edits[file.path].add_import("import os", why=WHY_ENVIRONMENT)

    def choose(self, file: ProgramFile, node: ast.expr, value: str, test: str = "", why: str = _WHY_FIRST) -> None:
        """Put another value in the place of an expression where a test holds, by default in all instances but one.

        The choice has brackets where it is a part of another expression.
        """
        above = next(file.iter_above(node))
        is_part = isinstance(above, ast.expr) and not (isinstance(above, ast.Call) and node in above.args)
        code = f"{value} if {test or self.others} else WHOLE"
        self.edits[file.path].replace(node, f"({code})" if is_part else code, "instances", why)
        self.require(file, "this_instance")

    def unpack(self, file: ProgramFile, call: Call, setting: str, test: str = "", why: str = _WHY_FIRST) -> None:
        """Give a call another setting where a test holds, by default in all instances but one."""
        code = f"**({{{setting}}} if {test or self.others} else {{}})"
        self.edits[file.path].add_argument(call.node, "", code, "instances", why)
        self.require(file, "this_instance")

    def guard(self, file: ProgramFile, statement: ast.stmt) -> None:
        """Let the first instance alone carry a statement out."""
        self.edits[file.path].guard(statement, statement, self.others, "", "instances", _WHY_FIRST)
        self.require(file, "this_instance")

    def is_early(self, call: Call) -> bool:
        """Tell, and leave to a person, what the program comes to before it knows its device."""
        statement: Optional[ast.stmt] = self.option.statement
        if statement is None:
            return False
        if self.option.is_before:
            # of what stands at the top level of a file
            is_behind = call.where.file == self.option.path and call.node.lineno >= statement.lineno
            is_early = not (call.where.function or is_behind)
        else:
            is_early = 0 < self.program.get_order(call.node) < self.program.get_order(statement)
        if is_early:
            self.leave(call, "it comes before the command line is read, which chooses the device", "let it come later")
        return is_early
