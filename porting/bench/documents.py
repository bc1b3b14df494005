"""This parser reads YAML and JSON files as trees whose nodes know their line and column.

`benchmark_files` uses it, so that each finding can point at the faulty value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, NamedTuple, Tuple

from porting.diagnostics import Place, PortingError, require_extra, suggest_file

__all__ = ["Entry", "Node", "read_document"]


@dataclass(frozen=True)
class Node:
    """A value and where it begins: `value` is plain, or a list of nodes, or a dictionary of entries."""

    value: Any
    place: Place

    @property
    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: entry.node.plain for key, entry in self.value.items()}
        return [item.plain for item in self.value] if isinstance(self.value, list) else self.value


class Entry(NamedTuple):
    """A value of a dictionary, and the place of its key."""

    key_place: Place
    node: Node


def read_document(path: Path) -> Node:
    """Read a file, JSON by its name and YAML otherwise.

    Raises PortingError: T001 with the place for what cannot be parsed and for a key that stands twice, X001 when
    YAML is to be read and PyYAML is not installed, T002 when there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PortingError.of(
            "T002", message=f"there is no file `{path}`", help=suggest_file(path, otherwise="check the path")
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PortingError.of("T001", message=f"`{path}` cannot be read: {error}", help="give a text file") from error
    return (_read_json if path.suffix == ".json" else _read_yaml)(str(path), text)


def _make_error(message: str, place: Place, help: str = "correct the line") -> PortingError:
    return PortingError.of("T001", message=message, place=place, help=help)


def _make_mapping(items: Iterable[Tuple[str, Place, Node]], place: Place) -> Node:
    """Make the node of a mapping from its keys, their places, and their values."""
    entries: Dict[str, Entry] = {}
    for key, key_place, node in items:
        if key in entries:
            help = "keep one of them: the other would be lost without a word"
            raise _make_error(f"`{key}` stands twice", key_place, help)
        entries[key] = Entry(key_place, node)
    return Node(entries, place)


def _read_yaml(file: str, text: str) -> Node:
    yaml = require_extra(
        "yaml",
        extra="bench",
        message=f"`{file}` is YAML, and PyYAML is not installed",
        help=["or write the same as JSON: a file whose name ends in .json"],
    )
    loader = yaml.SafeLoader("")

    def find_place(mark: Any) -> Place:
        return Place(file, mark.line + 1, mark.column + 1)

    def convert(node: Any) -> Node:
        """Turn PyYAML's node, which knows its place, into ours; plain values only, as its safe loader makes them."""
        place = find_place(node.start_mark)
        if isinstance(node, yaml.SequenceNode):
            return Node([convert(item) for item in node.value], place)
        if not isinstance(node, yaml.MappingNode):
            return Node(loader.construct_object(node), place)
        items = ((str(key.value), find_place(key.start_mark), convert(value)) for key, value in node.value)
        return _make_mapping(items, place)

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return Node(None, Place(file, 1)) if root is None else convert(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(file, 1) if mark is None else find_place(mark)
        raise _make_error(f"this is no YAML: {getattr(error, 'problem', error)}", place) from error


_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[-+.\w]+|\S')
_MARKS = frozenset("}],:")
_JSON_FAULTS = {
    "Extra data": "`{}` follows the end",
    "Expecting ':' delimiter": "`:` is missing",
    "Expecting ',' delimiter": "`,` or a closing bracket is missing",
    "Expecting property name enclosed in double quotes": "`{}` is no key in double quotes",
}


def _read_json(file: str, text: str) -> Node:
    """Read JSON with Python's parser, and find the places of its values by going through the text once more."""

    def find_place(position: int) -> Place:
        before = text[:position]
        return Place(file, before.count("\n") + 1, position - before.rfind("\n"))

    try:
        # JSON has no tuples: they are objects here, with keys that stand twice
        parsed = json.loads(text, object_pairs_hook=tuple)
    except json.JSONDecodeError as error:
        found = _TOKEN.search(text, error.pos)
        fault = "the file ends too early" if found is None else _JSON_FAULTS.get(error.msg, "`{}` is no value")
        place = find_place(len(text.rstrip()) if found is None else found.start())
        raise _make_error(f"this is no JSON: {fault.format(found and found[0])}", place) from None
    starts = (find_place(match.start()) for match in _TOKEN.finditer(text) if match[0] not in _MARKS)

    def locate(value: object) -> Node:
        place = next(starts)
        if isinstance(value, list):
            return Node([locate(item) for item in value], place)
        if not isinstance(value, tuple):
            return Node(value, place)
        return _make_mapping(((key, next(starts), locate(item)) for key, item in value), place)

    return locate(parsed)
