"""The moments at which the calls of a run were done, and what ran them, which may change between two calls."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

__all__ = ["Moments", "take_calls"]

# Looking takes microseconds: it must not be a part of what is measured.
_LOOK_SECONDS = 0.01


class Moments(NamedTuple):
    """Seconds from the beginning to the end of each call, and from which call on an engine ran them.

    An engine has its `name`, the `call` after which it was seen first, counted from 1, and the `seconds` to that call.
    """

    call_seconds: List[float]
    engines: List[Dict[str, Any]]


def take_calls(
    call: Callable[[], Any],
    *,
    began: float,
    num_calls: int,
    limit_seconds: Optional[float] = None,
    read_engine: Callable[[], str] = lambda: "",
) -> Moments:
    """Make so many calls, or stop once those after the first have taken `limit_seconds`.

    `began` is the moment of `time.perf_counter()` that counts as the beginning. `read_engine` names what runs the
    calls, nothing where that is not known; it is asked every now and then.

    >>> moments = take_calls(lambda: None, began=time.perf_counter(), num_calls=3, read_engine=lambda: "replay")
    >>> len(moments.call_seconds), [(engine["name"], engine["call"]) for engine in moments.engines]
    (3, [('replay', 1)])
    """
    limit = math.inf if limit_seconds is None else limit_seconds
    moments: List[float] = []
    engines: List[Dict[str, Any]] = []
    looked, known = -math.inf, ""
    while len(moments) < num_calls:
        call()
        moment = time.perf_counter() - began
        moments.append(moment)
        if moment - looked > _LOOK_SECONDS:
            looked, engine = moment, read_engine()
            if engine != known:
                engines.append({"name": engine, "call": len(moments), "seconds": moment})
                known = engine
        if moment - moments[0] > limit:
            break
    return Moments(moments, engines)
