"""Check plain values against `schema.json`, the form of a result file."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping

__all__ = ["check", "load_schema"]

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, (list, tuple)),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


@functools.lru_cache(maxsize=None)
def load_schema() -> Dict[str, Any]:
    """Read the JSON schema (draft 7) of result files."""
    schema: Dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))
    return schema


def check(value: Any, schema: Mapping[str, Any]) -> List[str]:
    """List what is wrong with `value`, each with the path to it; empty for a value that fits.

    Knows the words of JSON schema that `schema.json` uses, and no others.

    >>> check({"a": 1, "b": 2}, {"type": "object", "additionalProperties": False, "properties": {"a": {}}})
    ['$: unknown key `b`']
    """
    return list(_find_problems(value, schema, "$", schema))


def _find_problems(value: Any, schema: Mapping[str, Any], path: str, root: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        found = [list(_find_problems(value, choice, path, root)) for choice in schema["anyOf"]]
        # what is wrong is told by the choice that fits best
        yield from min(found, key=len)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {', '.join(map(repr, schema['enum']))}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_TYPES[name](value) for name in types):
        yield f"{path}: {value!r:.60} is not of type {' or '.join(types)}"
        return
    if isinstance(value, Mapping):
        yield from _find_problems_of_object(value, schema, path, root)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _find_problems(item, schema.get("items", {}), f"{path}[{index}]", root)


def _find_problems_of_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], path: str, root: Mapping[str, Any]
) -> Iterator[str]:
    yield from (f"{path}: `{name}` is missing" for name in schema.get("required", []) if name not in value)
    for name, item in value.items():
        if name in schema.get("properties", {}):
            yield from _find_problems(item, schema["properties"][name], f"{path}.{name}", root)
        elif schema.get("additionalProperties", True) is False:
            yield f"{path}: unknown key `{name}`"
