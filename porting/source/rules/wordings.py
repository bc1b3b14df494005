"""What a rule says beside the fault: what a port needs there, what to do, and the step of a recipe that shows it."""

from __future__ import annotations

import functools
from typing import Mapping, NamedTuple, Optional, Tuple

from porting.source.tables import read_sections

__all__ = ["Wording", "read_wordings"]


class Wording(NamedTuple):
    """The words of one code: in a plain program, as the action that helps, and where a recipe does it."""

    needs: str
    help: str
    shown: Optional[Tuple[str, int]] = None
    """A recipe and the number of its step."""


@functools.lru_cache(maxsize=1)
def read_wordings() -> Mapping[str, Wording]:
    """Read the wording of each code that rules find, from `wordings.txt`."""
    wordings = {}
    for head, (needs, help) in read_sections("wordings.txt").items():
        code, recipe, step = (*head.split(), "", "")[:3]
        wordings[code] = Wording(needs, help, (recipe, int(step)) if recipe else None)
    return wordings
