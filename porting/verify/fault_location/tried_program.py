"""Reproductions are tried before they are shown: one that does not show the difference helps nobody."""

from __future__ import annotations

import io
import re
import warnings
from contextlib import redirect_stdout
from dataclasses import replace

from porting.verify.certificate import Location
from porting.verify.plain_runs import keep_streams

__all__ = ["without_idle_reproduction"]

_DIFFERENCE = re.compile(r"^largest difference: (\S+)$", re.MULTILINE)


def without_idle_reproduction(location: Location) -> Location:
    """Return a location whose reproduction prints a difference here; it has none where it does not."""
    if not location.reproduction or _shows_difference(location.reproduction):
        return location
    return replace(location, reproduction="")


def _shows_difference(program: str) -> bool:
    printed = io.StringIO()
    try:
        with keep_streams(), redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(program, "<reproduction>", "exec"), {"__name__": "__main__"})
    except Exception:
        return False
    found = _DIFFERENCE.search(printed.getvalue())
    # NaN is a difference, too
    return found is None or float(found[1]) != 0.0
