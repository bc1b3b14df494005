"""The values that each option takes, in words and as a check, and the error that names all that are wrong."""

from __future__ import annotations

import math
import os
from types import MappingProxyType
from typing import Any, Callable, List, Mapping, NamedTuple

from porting.diagnostics import OptionError

__all__ = ["OUTPUT_MODES", "REDUCTIONS", "Problem", "find_problems", "is_count", "list_names", "make_option_error"]

OUTPUT_MODES = {"default": "Default", "final": "Final", "all": "All", "sum": "Sum", "every_n": "EveryN"}
"""What `output_mode` may say, and the vendor's name of it."""

REDUCTIONS = {"mean": "Mean", "sum": "Sum"}
"""What `reduction` may say, and the vendor's name of it."""

_ALLOWED = ("custom-autograd-function",)


def is_count(value: Any) -> bool:
    """Tell whether `value` is an integer of at least 1; True and False are none.

    >>> is_count(2), is_count(0), is_count(True)
    (True, False, False)
    """
    return _is_integer(value) and value >= 1


class Problem(NamedTuple):
    """What is wrong with one option, and which values it takes."""

    fault: str
    accepted: str


def find_problems(options: Any) -> List[Problem]:
    """Return what is wrong with each option by itself."""
    values = {name: getattr(options, name) for name in _ACCEPTED}
    return [
        Problem(f"`{name}` is {value!r}", f"{name}: {_ACCEPTED[name].text}")
        for name, value in values.items()
        if not _ACCEPTED[name].check(value)
    ]


def make_option_error(problems: List[Problem]) -> OptionError:
    """Make the error P002 that names every problem and the values that are accepted instead."""
    accepted = tuple(f"accepted values of {problem.accepted}" for problem in problems)
    if len(problems) == 1:
        return OptionError.at_caller("P002", message=problems[0].fault, help=accepted)
    return OptionError.at_caller(
        "P002",
        message=f"{len(problems)} options have values they cannot have",
        notes=tuple(problem.fault for problem in problems),
        help=accepted,
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_folder(value: Any) -> bool:
    return value is None or (isinstance(value, (str, os.PathLike)) and bool(os.fspath(value)))


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _are_stages(value: Any) -> bool:
    """Tell whether `value` is None or names modules with IPUs of which none up to the last is left out."""
    if not isinstance(value, Mapping):
        return value is None
    are_names = all(isinstance(name, str) and name for name in value)
    are_numbers = all(_is_integer(ipu) and ipu >= 0 for ipu in value.values())
    return are_names and are_numbers and {0, *value.values()} == set(range(max([0, *value.values()]) + 1))


def _are_names(value: Any) -> bool:
    is_list = isinstance(value, (list, tuple))
    return is_list and all(isinstance(name, str) and name for name in value) and len(set(value)) == len(value)


def list_names(names: Any) -> str:
    """Write names as Python would, with commas between."""
    return ", ".join(repr(name) for name in names)


class _Accepted(NamedTuple):
    """The values that an option takes: in words, and as a check."""

    text: str
    check: Callable[[Any], bool]


def _accept_one_of(*names: str) -> _Accepted:
    return _Accepted(f"one of {list_names(names)}", lambda value: isinstance(value, str) and value in names)


def _accept_name(text: str) -> _Accepted:
    return _Accepted(text, lambda value: isinstance(value, str) and bool(value))


_COUNT = _Accepted("an integer of at least 1", is_count)
_SWITCH = _Accepted("True or False", lambda value: isinstance(value, bool))

_ACCEPTED: Mapping[str, _Accepted] = MappingProxyType(
    {
        "micro_batch": _COUNT,
        "accumulation": _COUNT,
        "replicas": _COUNT,
        "device_iterations": _COUNT,
        "output_every": _COUNT,
        "output_mode": _accept_one_of(*OUTPUT_MODES),
        "reduction": _accept_one_of(*REDUCTIONS),
        "precision": _accept_one_of("float32", "float16", "bfloat16", "mixed"),
        "memory": _accept_one_of("warn", "error", "ignore"),
        "broadcast_buffers": _SWITCH,
        "keep_gradients": _SWITCH,
        "seed": _Accepted(
            "None, or an integer from 0 to 2**64 - 1",
            lambda value: value is None or (_is_integer(value) and 0 <= value < 2**64),
        ),
        "cache_dir": _Accepted("None, or the path of a folder", _is_folder),
        "engine": _accept_name("'ready', 'auto', or the name of an engine"),
        "tuning_seconds": _Accepted("a number above 0", _is_seconds),
        "computation_order": _accept_name("'none', 'chen', 'gttime', 'gtmem' or another policy"),
        "stages": _Accepted("None, or names of modules with their IPU: 0, 1, ... without a gap", _are_stages),
        "allow": _Accepted(
            f"a list of {list_names(_ALLOWED)}, each once",
            lambda value: _are_names(value) and set(value) <= set(_ALLOWED),
        ),
        "recompute": _Accepted("a list of names of modules, each once", _are_names),
        "frozen": _Accepted(
            "'check', 'allow', or a list of names, each once",
            lambda value: value in ("check", "allow") or _are_names(value),
        ),
    }
)
