"""Whether two outcomes of a call are the same for a user: values within rounding, errors by class and first words."""

from __future__ import annotations

import math
import re
from typing import Any, List

_NUM_WORDS = 5
_ERRORS_OF_PYTHON = ("TypeError", "ZeroDivisionError")


def difference(theirs: Any, ours: Any) -> str:
    """Say in which part the outcome of the simulator differs from that of the front end; nothing if it does not."""
    for part in ("error", "value", "warnings"):
        if (part in theirs) != (part in ours):
            return part
    if "error" in theirs and not _is_same_error(theirs["error"], ours["error"]):
        return "error"
    if "value" in theirs and not _is_same_value(theirs["value"], ours["value"]):
        return "value"
    if [_first_words(text) for text in theirs["warnings"]] != [_first_words(text) for text in ours["warnings"]]:
        return "warnings"
    return ""


def _is_same_error(theirs: Any, ours: Any) -> bool:
    if (theirs["class"], theirs["origin"]) != (ours["class"], ours["origin"]):
        return False
    # The core's words are the stub's, Python's change with its version, and what has no words may have ours.
    is_free = theirs["origin"] == "core" or theirs["class"] in _ERRORS_OF_PYTHON or not theirs["text"]
    return is_free or _first_words(theirs["text"]) == _first_words(ours["text"])


def _first_words(text: str) -> List[str]:
    return re.findall(r"\w+", text.lower())[:_NUM_WORDS]


def _is_same_value(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, float) or isinstance(ours, float):
        numbers = isinstance(theirs, (int, float)) and isinstance(ours, (int, float))
        return numbers and math.isclose(theirs, ours, rel_tol=1e-3, abs_tol=1e-5)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(_is_same_value(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(_is_same_value, theirs, ours))
    return type(theirs) is type(ours) and theirs == ours
