"""YAML and JSON files as trees that remember where everything stands, so that a finding can name its line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from porting.diagnostics import Place, PortingError, require_extra

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
        raise PortingError.of("T002", message=f"there is no file `{path}`", help="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PortingError.of("T001", message=f"`{path}` cannot be read: {error}", help="give a text file") from error
    return _JsonReader(str(path), text).read() if path.suffix == ".json" else _read_yaml(str(path), text)


def _make_error(message: str, place: Place, help: str = "correct the line") -> PortingError:
    return PortingError.of("T001", message=message, place=place, help=help)


def _require_new(key: str, entries: Dict[str, Entry], place: Place) -> None:
    if key in entries:
        raise _make_error(f"`{key}` stands twice", place, "keep one of them: the other would be lost without a word")


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
        entries: Dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key, key_place = str(key_node.value), find_place(key_node.start_mark)
            _require_new(key, entries, key_place)
            entries[key] = Entry(key_place, convert(value_node))
        return Node(entries, place)

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return Node(None, Place(file, 1)) if root is None else convert(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(file, 1) if mark is None else find_place(mark)
        raise _make_error(f"this is no YAML: {getattr(error, 'problem', error)}", place) from error


_TOKEN = re.compile(r'\s*(?:(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[-+.\w]+)|(?P<other>\S)|$)')


class _JsonReader:
    """A parser that keeps places, which Python's own does not."""

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text, self._position = file, text, 0

    def read(self) -> Node:
        node = self._read_value()
        token, start = self._read_token()
        if token:
            raise self._make_fault(f"`{token}` follows the end", start)
        return node

    def _read_value(self) -> Node:
        token, start = self._read_token()
        place = self._find_place(start)
        if token == "{":
            entries: Dict[str, Entry] = {}
            self._read_items("}", lambda: self._read_entry(entries))
            return Node(entries, place)
        if token == "[":
            items: List[Node] = []
            self._read_items("]", lambda: items.append(self._read_value()))
            return Node(items, place)
        try:
            return Node(json.loads(token), place)
        except ValueError:
            fault = f"`{token}` is no value" if token else "the file ends too early"
            raise self._make_fault(fault, start) from None

    def _read_items(self, end: str, read_item: Callable[[], None]) -> None:
        before = self._position
        if self._read_token()[0] == end:
            return
        self._position = before
        while True:
            read_item()
            if self._expect_mark(",", end) == end:
                return

    def _read_entry(self, entries: Dict[str, Entry]) -> None:
        token, start = self._read_token()
        if not token.startswith('"'):
            raise self._make_fault(f"`{token}` is no key in double quotes" if token else "a `}` is missing", start)
        key, key_place = json.loads(token), self._find_place(start)
        _require_new(key, entries, key_place)
        self._expect_mark(":")
        entries[key] = Entry(key_place, self._read_value())

    def _expect_mark(self, *marks: str) -> str:
        token, start = self._read_token()
        if token not in marks:
            raise self._make_fault(f"{' or '.join(f'`{mark}`' for mark in marks)} is missing", start)
        return token

    def _read_token(self) -> Tuple[str, int]:
        match = _TOKEN.match(self._text, self._position)
        if match is None or match.lastgroup is None:
            return "", len(self._text.rstrip())
        self._position = match.end()
        return match[match.lastgroup], match.start(match.lastgroup)

    def _find_place(self, position: int) -> Place:
        before = self._text[:position]
        return Place(self._file, before.count("\n") + 1, position - before.rfind("\n"))

    def _make_fault(self, message: str, position: int) -> PortingError:
        return _make_error(f"this is no JSON: {message}", self._find_place(position))
