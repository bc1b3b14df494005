"""YAML and JSON files as trees that remember where everything stands, so that a finding can name its line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from porting.diagnostics import Place, PortingError

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
    return _Json(str(path), text).read() if path.suffix == ".json" else _read_yaml(str(path), text)


def _invalid(message: str, place: Place, help: str) -> PortingError:
    return PortingError.of("T001", message=message, place=place, help=help)


def _twice(key: str, place: Place) -> PortingError:
    return _invalid(f"`{key}` stands twice", place, "keep one of them: the other would be lost without a word")


# -- YAML --------------------------------------------------------------------------------------------------------------


def _read_yaml(file: str, text: str) -> Node:
    yaml = _import_yaml(file)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return Node(None, Place(file, 1)) if root is None else _Yaml(file, yaml).convert(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(file, 1) if mark is None else Place(file, mark.line + 1, mark.column + 1)
        raise _invalid(f"this is no YAML: {getattr(error, 'problem', error)}", place, "correct the line") from error


def _import_yaml(file: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise PortingError.of(
            "X001",
            message=f"`{file}` is YAML, and PyYAML is not installed",
            help=('pip install "ipu-porting[bench]"', "or write the same as JSON: a file whose name ends in .json"),
        ) from error
    return yaml


class _Yaml:
    """Turns PyYAML's nodes, which know their places, into ours; plain values only, as its safe loader makes them."""

    def __init__(self, file: str, yaml: Any) -> None:
        self._file, self._yaml, self._loader = file, yaml, yaml.SafeLoader("")

    def convert(self, node: Any) -> Node:
        place = self._place(node)
        if isinstance(node, self._yaml.SequenceNode):
            return Node([self.convert(item) for item in node.value], place)
        if not isinstance(node, self._yaml.MappingNode):
            return Node(self._loader.construct_object(node), place)
        entries: Dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key, key_place = str(key_node.value), self._place(key_node)
            if key in entries:
                raise _twice(key, key_place)
            entries[key] = Entry(key_place, self.convert(value_node))
        return Node(entries, place)

    def _place(self, node: Any) -> Place:
        return Place(self._file, node.start_mark.line + 1, node.start_mark.column + 1)


# -- JSON --------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*(?:(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[-+.\w]+)|(?P<other>\S)|$)')


class _Json:
    """A parser that keeps places, which Python's own does not."""

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text, self._position = file, text, 0

    def read(self) -> Node:
        node = self._value()
        token, start = self._next()
        if token:
            raise self._fault(f"`{token}` follows the end", start)
        return node

    def _value(self) -> Node:
        token, start = self._next()
        place = self._place(start)
        if token == "{":
            return Node(self._object(), place)
        if token == "[":
            return Node(self._array(), place)
        try:
            return Node(json.loads(token), place)
        except ValueError:
            fault = f"`{token}` is no value" if token else "the file ends too early"
            raise self._fault(fault, start) from None

    def _object(self) -> Dict[str, Entry]:
        entries: Dict[str, Entry] = {}
        while True:
            token, start = self._next()
            if token == "}" and not entries:
                return entries
            if not token.startswith('"'):
                raise self._fault(f"`{token}` is no key in double quotes" if token else "a `}` is missing", start)
            key, key_place = json.loads(token), self._place(start)
            if key in entries:
                raise _twice(key, key_place)
            self._expect(":")
            entries[key] = Entry(key_place, self._value())
            if self._expect(",", "}") == "}":
                return entries

    def _array(self) -> List[Node]:
        items: List[Node] = []
        before = self._position
        if self._next()[0] == "]":
            return items
        self._position = before
        while True:
            items.append(self._value())
            if self._expect(",", "]") == "]":
                return items

    def _expect(self, *marks: str) -> str:
        token, start = self._next()
        if token not in marks:
            raise self._fault(f"{' or '.join(f'`{mark}`' for mark in marks)} is missing", start)
        return token

    def _next(self) -> Tuple[str, int]:
        match = _TOKEN.match(self._text, self._position)
        if match is None or match.lastgroup is None:
            return "", len(self._text.rstrip())
        self._position = match.end()
        return match[match.lastgroup], match.start(match.lastgroup)

    def _place(self, position: int) -> Place:
        before = self._text[:position]
        return Place(self._file, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)

    def _fault(self, message: str, position: int) -> PortingError:
        return _invalid(f"this is no JSON: {message}", self._place(position), "correct the line")
