"""These functions show copies into another memory layout, as lines of a report and as a figure in a table.

`porting.bench.pages` uses them.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Tuple

from porting.executables.settings import format_bytes

__all__ = ["tell_layout_copies", "write_layout_copies"]

Plain = Mapping[str, Any]

_KINDS = {"operators": "by operators", "weights": "of weights by oneDNN", "others": "of other tensors by oneDNN"}


def tell_layout_copies(result: Plain) -> Iterator[Tuple[str, str]]:
    """Say what a step of each side copies into another layout, where that was counted."""
    for side in ("eager", "ported"):
        of_side = result["layout_copies"][side]
        if of_side is not None:
            parts = [f"{of_side[kind]['number']:,.0f} {words}" for kind, words in _KINDS.items()]
            num_bytes = sum(of_side[kind]["bytes"] for kind in _KINDS)
            yield (
                "layout copies" if side == "eager" else "",
                f"{side} {of_side['number']:,.0f} ({', '.join(parts)}), {format_bytes(round(num_bytes))}, "
                f"{100 * of_side['share']:.1f} % of a step",
            )


def write_layout_copies(of_side: Optional[Plain]) -> str:
    """Write how many copies a step makes and which part of its time they take; "-" if nobody knows.

    >>> write_layout_copies({"number": 14.0, "share": 0.021})
    '14 (2 %)'
    """
    if of_side is None:
        return "-"
    number = f"{of_side['number']:,.0f}"
    return number if not of_side["number"] else f"{number} ({100 * of_side['share']:.0f} %)"
