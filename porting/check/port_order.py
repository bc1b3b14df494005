"""The order in which a port is made, and the recipe's step that shows each part: for programs that are plain so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

from porting.diagnostics import CODES, Finding, Place

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


# As the recipes go: data of one shape, the model, its loss, the optimizer, the loader, compiling, then what costs time.
_ORDER: Sequence[Tuple[str, Sequence[str], str]] = (
    ("the batches", ("B004", "B005", "B007", "B010"), "mnist_loop 1"),
    ("the model", ("C",), "skip_gram 2"),
    ("the loss", ("L",), "first_port 2"),
    ("the optimizer", ("O001", "O002", "O003"), "dcgan 1"),
    ("the schedule", ("O006",), "cosmictagger 3"),
    ("the training step", ("O",), "first_port 2"),
    ("the loader", ("B",), "first_port 3"),
    ("the device", ("D",), "first_port 4"),
    ("options", ("P",), "first_port 5"),
    ("checkpoints", ("K",), "first_port 4"),
    ("instances", ("S",), "distributed 3"),
)


def list_needs(findings: Sequence[Finding]) -> Tuple[PortNeed, ...]:
    """List what the findings of a plain program ask for, each kind once, in the order in which a port is made."""
    together: Dict[str, List[Finding]] = {}
    for finding in findings:
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
    return finding.help[0] if finding.help else str(finding.message)


def _find_rank(code: str) -> int:
    """Find the entry that names the code itself, or else its family; what has none comes last."""
    for is_match in (str.__eq__, str.startswith):
        for rank, (_part, codes, _recipe) in enumerate(_ORDER):
            if any(is_match(code, known) for known in codes):
                return rank
    return len(_ORDER)


def _name_recipe(code: str) -> str:
    rank = _find_rank(code)
    if rank == len(_ORDER):
        return ""
    name, _, step = _ORDER[rank][2].partition(" ")
    return f"porting recipe show {name} --step {step} --diff"
