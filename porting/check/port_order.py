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
# A code alone comes before its family; where no recipe has the step, none is named.
_ORDER: Sequence[Tuple[Sequence[str], str]] = (
    (("B018",), "seq2seq 1"),
    (("B004", "B005", "B007", "B010"), "mnist_loop 1"),
    (("B019",), "ptb_rnn 1"),
    (("B020",), "seq2seq 4"),
    (("C",), ""),
    (("D010", "D011", "D013", "D019"), ""),
    (("D012", "D018", "B015"), "distributed 1"),
    (("O014",), "dcgan 1"),
    (("L",), "first_port 2"),
    (("O001", "O002", "O003", "O009", "O015"), "first_port 1"),
    (("O",), "first_port 2"),
    (("O010", "P"), "cosmictagger 8"),
    (("O011",), "first_port 6"),
    (("O006", "O013", "B016"), "cosmictagger 3"),
    (("B",), "first_port 3"),
    (("D",), "first_port 4"),
    (("D016",), "cosmictagger 7"),
    (("D020", "L013"), "first_port 5"),
    (("K",), ""),
    (("K007", "D017", "O016"), "distributed 3"),
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
        for rank, (codes, _recipe) in enumerate(_ORDER):
            if any(is_match(code, known) for known in codes):
                return rank
    return len(_ORDER)


def _name_recipe(code: str) -> str:
    rank = _find_rank(code)
    name, _, step = (_ORDER[rank][1] if rank < len(_ORDER) else "").partition(" ")
    if not name:
        return ""
    return f"porting recipe show {name} --step {step} --diff"
