"""What of a program is reached: places that no program comes to, and files that are for another framework."""

from __future__ import annotations

from functools import cached_property
from typing import Collection, Dict, Set, Union

from porting.source.facts import Call, Facts, Kind, Statement, Where
from porting.source.library import NAMES

__all__ = ["Reach", "share_program"]


class Reach:
    """Where a program comes to, as its facts tell."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def is_of_others(self, file: str) -> bool:
        """Tell whether a file is written for another framework, as programs that may run with either have.

        One that imports it in a function, as a launcher does, is not.
        """
        imported = self._imported.get(file, set())
        return bool(imported & NAMES["other frameworks"]) and "torch" not in imported

    @cached_property
    def _imported(self) -> Dict[str, Set[str]]:
        found: Dict[str, Set[str]] = {}
        for one in (one for one in self._facts.imports if not one.where.function):
            found.setdefault(one.place.file, set()).add(one.name.partition(".")[0])
        return found

    def is_missed(self, facts: Collection[Union[Call, Statement]]) -> bool:
        """Tell whether no program is known that comes to any of some facts, though one comes to where a port is made.

        What is given to a call, as `DataLoader(data, collate_fn=join)`, may be called by it.
        """
        return self._is_port_reached and bool(facts) and not any(map(self._is_reached, facts))

    @cached_property
    def _is_port_reached(self) -> bool:
        return any(
            port.call is not None and port.call.where.programs for port in self._facts.list_program_objects(Kind.PORT)
        )

    def _is_reached(self, fact: Union[Call, Statement]) -> bool:
        return bool(fact.where.programs) or fact.where.function.rpartition(".")[2] in self._handed_over

    @cached_property
    def _handed_over(self) -> Set[str]:
        reached = (call.node for call in self._facts.calls if call.where.programs)
        given = (value for node in reached for value in (*node.args, *(word.value for word in node.keywords)))
        parts = (
            part for value in given for part in (value, getattr(value, "body", None), getattr(value, "orelse", None))
        )
        return {name for part in parts for name in (getattr(part, "id", ""), getattr(part, "attr", "")) if name}


def share_program(one: Where, other: Where) -> bool:
    """Tell whether one program comes to both; of what nothing calls nobody knows."""
    return not one.programs or not other.programs or bool(one.programs & other.programs)
