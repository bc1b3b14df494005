"""The search for the first value that is not finite in a captured step: a rehearsal is replayed and looked at."""

from __future__ import annotations

from typing import Optional

from ...nan_search import NotFinite, NotFiniteSearch, is_not_finite
from ..calls.rehearsal import Rehearsal
from .watched_replay import read_state, watch_replay

__all__ = ["find_not_finite"]


def find_not_finite(rehearsal: Rehearsal) -> Optional[NotFinite]:
    """Replay the call and return the first value of it that is not finite, or None; the rehearsal is used up."""
    state = read_state(rehearsal.state)
    # what is so already is not the step's fault
    known = [name for name, buffer in state.buffers.items() if is_not_finite(buffer)]
    search = NotFiniteSearch(rehearsal.groups, rehearsal.group_names, state, known=known)
    return search.find(watch_replay(rehearsal, search))
