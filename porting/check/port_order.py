"""The order in which a port is made, and the recipe's step that shows each part: for programs that are plain so far."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

from porting.diagnostics import CODES, Finding, Place
from porting.source.rules.wordings import read_wordings
from porting.source.tables import read_sections

__all__ = ["PortNeed", "list_needs"]


@dataclass(frozen=True)
class PortNeed:
    """One thing that a port needs: what to do, the code of the findings that ask for it, where, and who shows it."""

    action: str
    code: str
    places: Tuple[Place, ...]
    recipe: str

    def to_dict(self) -> Dict[str, Any]:
        """Make a dictionary of plain values, ready for JSON."""
        return {
            "action": self.action,
            "code": self.code,
            "slug": CODES[self.code].slug,
            "places": [str(place) for place in self.places],
            "recipe": self.recipe,
        }


_PLAIN_WORDS = "a port needs "


def list_needs(findings: Sequence[Finding]) -> Tuple[PortNeed, ...]:
    """List what the findings of a plain program ask for, each kind once, in the order in which a port is made."""
    together: Dict[str, List[Finding]] = {}
    for finding in findings:
        # a file that does not parse, or a comment that allows nothing, is no part of a port
        if not finding.code.startswith("X"):
            together.setdefault(finding.code, []).append(finding)
    return tuple(
        PortNeed(
            action=_name_action(alike[0]),
            code=code,
            places=tuple(finding.place for finding in alike if finding.place is not None),
            recipe=_name_recipe(code),
        )
        for code, alike in sorted(together.items(), key=lambda item: (_find_rank(item[0]), item[0]))
    )


def _name_action(finding: Finding) -> str:
    """Say what is needed, as the rules word it in a plain program; else what helps."""
    message = str(finding.message)
    if message.startswith(_PLAIN_WORDS):
        return message[len(_PLAIN_WORDS) :]
    return finding.help[0] if finding.help else message


def _find_rank(code: str) -> int:
    """Find the line that names the code itself, or else its family; what has none comes last."""
    ranks = _read_ranks()
    return ranks.get(code, ranks.get(code[0], len(ranks)))


@functools.lru_cache(maxsize=1)
def _read_ranks() -> Dict[str, int]:
    lines = read_sections("port_order.txt")["order"]
    return {code: rank for rank, line in enumerate(lines) for code in line.split()}


def _name_recipe(code: str) -> str:
    wording = read_wordings().get(code)
    if wording is None or wording.shown is None:
        return ""
    name, step = wording.shown
    # no step comes before the first
    return f"porting recipe show {name} --step {step}{' --diff' if step else ''}"
