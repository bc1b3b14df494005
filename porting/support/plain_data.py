"""Write frozen dataclasses as strict JSON, and check their types when they are read again.

Reports of benchmarks and certificates are files of this form. Numbers that JSON does not have are written as
`{"$float": "NaN"}`, `"Infinity"` or `"-Infinity"`. Files of this project are written and read with it.
"""

from __future__ import annotations

import json
import math
from collections import abc
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Tuple, Type, TypeVar, Union, get_type_hints

__all__ = ["WrongDataError", "make_plain", "read_json", "read_plain"]

_MARK = "$float"
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_SHOWN = 60

_Data = TypeVar("_Data")


class WrongDataError(Exception):
    """An error for a value of a wrong type or form; the text names its place and the value."""


def make_plain(value: object) -> Any:
    """Return a dataclass and all in it as values that JSON has; raises TypeError for others.

    >>> make_plain({"loss": (1.5, math.inf)})
    {'loss': [1.5, {'$float': 'Infinity'}]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: make_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return make_plain(value.value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_MARK: _name_special(value)}
    if isinstance(value, str):
        # a name of a file may hold bytes that are no text
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, abc.Mapping):
        return {_escape_key(key): make_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [make_plain(item) for item in value]
    raise TypeError(f"a {type(value).__name__} is no plain data: {value!r:.100}")


def read_plain(kind: Type[_Data], plain: object, *, of_any_version: bool = False) -> _Data:
    """Make a dataclass of the result of `make_plain`; raises WrongDataError where a type is wrong.

    Only these types are known: plain ones, `Any`, dataclasses, enums, `Optional`, `Tuple` and `Mapping`. With
    `of_any_version`, fields that have a default may be missing, and values of properties are passed over.
    """
    try:
        made: _Data = _read_value(kind, plain, "", of_any_version)
    except RecursionError:
        raise WrongDataError("it is nested too deeply") from None
    return made


def read_json(text: str) -> Any:
    """Read a text of JSON, in which no name occurs twice and every number is finite.

    Raises WrongDataError for what is JSON but no plain data, and ValueError or RecursionError for what is no JSON.
    """
    return json.loads(text, object_pairs_hook=_make_unique, parse_constant=_refuse_constant, parse_float=_read_finite)


def _name_special(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _escape_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a {type(key).__name__} cannot be a key of plain data: {key!r:.100}")
    text = str(make_plain(str(key)))
    return f"${text}" if text.startswith("$") else text


# -- JSON --------------------------------------------------------------------------------------------------------------


def _make_unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise WrongDataError("a name stands twice in it")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise WrongDataError(f"{name} is no JSON")


def _read_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise WrongDataError(f"{text[:_MOST_SHOWN]} is beyond what a number can be")
    return number


# -- reading by type ---------------------------------------------------------------------------------------------------


def _read_value(kind: Any, plain: object, at: str, of_any_version: bool) -> Any:
    origin = getattr(kind, "__origin__", None)
    if kind is Any:
        return _read_any(plain, at)
    if origin is Union:  # Optional
        return None if plain is None else _read_value(kind.__args__[0], plain, at, of_any_version)
    if origin is tuple:
        return _read_tuple(kind.__args__, plain, at, of_any_version)
    if origin is abc.Mapping:
        return _read_mapping(kind.__args__[1], plain, at, of_any_version)
    if is_dataclass(kind):
        return _read_dataclass(kind, plain, at, of_any_version)
    if issubclass(kind, Enum):
        return _read_member(kind, plain, at)
    return _READERS[kind](plain, at)


def _read_dataclass(kind: Any, plain: object, at: str, of_any_version: bool) -> Any:
    known = get_type_hints(kind)
    if not isinstance(plain, dict):
        raise WrongDataError(_say_wrong(at, f"an object with the names of a {kind.__name__}", plain))
    given, names = set(plain), {field.name for field in fields(kind)}
    required = names
    if of_any_version:
        required = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
        given = {name for name in given if not isinstance(getattr(kind, name, None), property)}
    for wrong, fault in ((required - given, "is missing"), (given - names, "is not known")):
        if wrong:
            place = f"{at}.{min(wrong)}".lstrip(".")
            raise WrongDataError(f"`{place}` {fault}")
    return kind(**{name: _read_value(known[name], plain[name], f"{at}.{name}", of_any_version) for name in given})


def _read_tuple(kinds: Tuple[Any, ...], plain: object, at: str, of_any_version: bool) -> Tuple[Any, ...]:
    if not isinstance(plain, list):
        raise WrongDataError(_say_wrong(at, "a list", plain))
    wanted = (kinds[0],) * len(plain) if kinds[-1] is Ellipsis else kinds
    if len(plain) != len(wanted):
        raise WrongDataError(_say_wrong(at, f"a list of {len(wanted)}", plain))
    return tuple(
        _read_value(kind, item, f"{at}[{index}]", of_any_version)
        for index, (kind, item) in enumerate(zip(wanted, plain))
    )


def _read_mapping(kind: object, plain: object, at: str, of_any_version: bool) -> Dict[str, Any]:
    if not isinstance(plain, dict):
        raise WrongDataError(_say_wrong(at, "an object", plain))
    return {_read_key(key, at): _read_value(kind, item, f"{at}.{key}", of_any_version) for key, item in plain.items()}


def _read_member(kind: Type[Enum], plain: object, at: str) -> Enum:
    found = next((member for member in kind if member.value == plain), None)
    if found is None:
        raise WrongDataError(_say_wrong(at, f"one of {', '.join(str(member.value) for member in kind)}", plain))
    return found


def _read_any(plain: object, at: str) -> Any:
    if isinstance(plain, list):
        return [_read_any(item, at) for item in plain]
    if isinstance(plain, dict):
        if _MARK in plain:
            return _read_float(plain, at)
        return {_read_key(key, at): _read_any(item, at) for key, item in plain.items()}
    if isinstance(plain, float):
        return _read_float(plain, at)
    if plain is None or isinstance(plain, (bool, int)):
        return plain
    return _read_text(plain, at)


def _read_key(key: str, at: str) -> str:
    text = _read_text(key, at)
    if text.startswith("$") and not text.startswith("$$"):
        raise WrongDataError(_say_wrong(at, "a name", key))
    return text[1:] if text.startswith("$") else text


def _read_text(plain: object, at: str) -> str:
    if not isinstance(plain, str):
        raise WrongDataError(_say_wrong(at, "text", plain))
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise WrongDataError(_say_wrong(at, "text", plain)) from None
    return plain


def _read_whole(plain: object, at: str) -> int:
    if type(plain) is not int or plain < 0:
        raise WrongDataError(_say_wrong(at, "a whole number from 0 on", plain))
    return plain


def _read_float(plain: Any, at: str) -> float:
    if isinstance(plain, dict) and len(plain) == 1 and isinstance(plain.get(_MARK), str) and plain[_MARK] in _SPECIAL:
        return _SPECIAL[plain[_MARK]]
    if type(plain) in (int, float):
        try:
            number = float(plain)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):  # JSON's 1e999 is infinite
            return number
    raise WrongDataError(_say_wrong(at, "a number", plain))


def _read_truth(plain: object, at: str) -> bool:
    if not isinstance(plain, bool):
        raise WrongDataError(_say_wrong(at, "true or false", plain))
    return plain


_READERS: Mapping[Any, Callable[[Any, str], Any]] = {
    str: _read_text,
    int: _read_whole,
    float: _read_float,
    bool: _read_truth,
}


def _say_wrong(at: str, wanted: str, plain: object) -> str:
    return f"`{at.lstrip('.') or 'all of it'}` must be {wanted}, not {_show_plain(plain)}"


def _show_plain(plain: object) -> str:
    text = ascii(plain) if not isinstance(plain, int) or abs(plain) < 10**18 else "a number of many digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
