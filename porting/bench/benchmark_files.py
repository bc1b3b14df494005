"""`benchmarks.yml`: which targets are measured, in which matrix, and what is asked of them; checked line by line.

For that YAML and JSON files are trees that remember where everything stands, so that a finding can name its line.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from porting.diagnostics import Finding, Place, PortingError, require_extra

from .choices import COUNTS, MATRIX_KEYS, NAMED_SETTINGS, PRECISIONS, BenchSettings

__all__ = ["Entry", "FileEntry", "Node", "read_benchmarks", "read_document"]


@dataclass(frozen=True)
class FileEntry:
    """An entry of the file, checked; `settings` are fields of `BenchSettings`, the file's own and the entry's.

    `demand` has the speed-up that is asked of each precision; None leaves the suite's own.
    """

    name: str
    target: str
    matrix: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    demand: Optional[Mapping[str, float]] = None
    repeats: int = 1
    loader: Optional[str] = None
    timeout: Optional[float] = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class _Kind(NamedTuple):
    """A value's kind, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]


def _whole_number(least: int) -> _Kind:
    # True is an int to Python, and no number to people
    return _Kind(f"a whole number from {least} on", lambda value: type(value) is int and value >= least)


def _one_of(*names: str) -> _Kind:
    return _Kind(f"one of {', '.join(names)}", lambda value: value in names)


_TEXT = _Kind("a text", lambda value: isinstance(value, str) and bool(value))
_YES_NO = _Kind("true or false", lambda value: isinstance(value, bool))
_POSITIVE = _Kind("a number above 0", lambda value: type(value) in (int, float) and value > 0)
_ANYTHING = _Kind("", lambda value: True)

_OF_DEFAULTS = {bool: _YES_NO, float: _POSITIVE, int: _whole_number(1), type(None): _whole_number(1)}
_SETTINGS: Mapping[str, _Kind] = {
    **{setting.name: _OF_DEFAULTS.get(type(setting.default), _TEXT) for setting in fields(BenchSettings)},
    **{name: _one_of(*values) for name, values in NAMED_SETTINGS.items()},
    **dict.fromkeys(("seed", "start_up_runs", "cold_starts"), _whole_number(0)),
}
_MATRIX: Mapping[str, _Kind] = {
    key: _whole_number(1) if key in COUNTS else _one_of(*PRECISIONS) if key == "precision" else _TEXT
    for key in MATRIX_KEYS
}
_DEMAND: Mapping[str, _Kind] = {precision: _POSITIVE for precision in PRECISIONS}
_ENTRY: Mapping[str, _Kind] = {
    "target": _TEXT,
    "matrix": _ANYTHING,
    "demand": _ANYTHING,
    "repeats": _whole_number(1),
    "loader": _TEXT,
    "timeout": _POSITIVE,
    "settings": _ANYTHING,
}
_FILE: Mapping[str, _Kind] = {"benchmarks": _ANYTHING, "settings": _ANYTHING}


def read_benchmarks(path: Path) -> Tuple[List[FileEntry], List[Finding]]:
    """Read a file of benchmarks; what is wrong with it comes back as findings (T001), all at once.

    Raises PortingError for a file that cannot be read or parsed at all (see `read_document`).
    """
    reader = _Reader()
    root = read_document(path)
    top = reader.read_mapping(root, _FILE, "the file")
    settings = reader.read_settings(top)
    listed = top.get("benchmarks")
    entries: List[FileEntry] = []
    if listed is None:
        reader.add_finding(root.place, "there are no `benchmarks`", "write `benchmarks:` with an entry for each")
    elif not isinstance(listed.value, dict) or not listed.value:
        reader.add_finding(listed.place, "`benchmarks` has no entries", "write a name for each, with its `target`")
    else:
        entries = [reader.read_entry(name, entry.node, settings, path.parent) for name, entry in listed.value.items()]
    return entries, reader.findings


class _Reader:
    """Collects what is wrong while it reads."""

    def __init__(self) -> None:
        self.findings: List[Finding] = []

    def add_finding(self, place: Place, message: str, help: str) -> None:
        self.findings.append(Finding("T001", message=message, place=place, help=help))

    def read_mapping(self, node: Node, kinds: Mapping[str, _Kind], owner: str) -> Dict[str, Node]:
        """Return the known keys whose values are right."""
        if not isinstance(node.value, dict):
            self.add_finding(
                node.place, f"{owner} is {_describe_value(node)}", f"write keys and values: {', '.join(kinds)}"
            )
            return {}
        right: Dict[str, Node] = {}
        for key, (key_place, value) in node.value.items():
            if key not in kinds:
                near = difflib.get_close_matches(key, list(kinds), n=1)
                advice = f"did you mean `{near[0]}`?" if near else f"known keys are {', '.join(kinds)}"
                self.add_finding(key_place, f"unknown key `{key}` in {owner}", advice)
            elif self.check_value(key, value, kinds[key]):
                right[key] = value
        return right

    def check_value(self, key: str, node: Node, kind: _Kind) -> bool:
        is_right = kind.accepts(node.plain)
        if not is_right:
            self.add_finding(node.place, f"`{key}` is {_describe_value(node)}", f"`{key}` takes {kind.words}")
        return is_right

    def read_settings(self, known: Mapping[str, Node]) -> Dict[str, Any]:
        if "settings" not in known:
            return {}
        return {key: node.plain for key, node in self.read_mapping(known["settings"], _SETTINGS, "`settings`").items()}

    def read_entry(self, name: str, node: Node, shared: Mapping[str, Any], folder: Path) -> FileEntry:
        known = self.read_mapping(node, _ENTRY, f"`{name}`")
        plain = {key: value.plain for key, value in known.items()}
        return FileEntry(
            name=name,
            # an entry without a target is the suite's workload of that name
            target=_resolve_target(plain.get("target", name), folder),
            matrix=self._read_matrix(known["matrix"]) if "matrix" in known else {},
            demand=self._read_demand(known["demand"]) if "demand" in known else None,
            repeats=plain.get("repeats", 1),
            loader=_resolve_target(plain["loader"], folder) if "loader" in plain else None,
            timeout=plain.get("timeout"),
            settings={**shared, **self.read_settings(known)},
        )

    def _read_matrix(self, node: Node) -> Dict[str, List[Any]]:
        """Read a matrix, where one value may stand for a list of one."""
        listed: Dict[str, List[Any]] = {}
        for key, value in self.read_mapping(node, dict.fromkeys(_MATRIX, _ANYTHING), "`matrix`").items():
            items = value.value if isinstance(value.value, list) else [value]
            if not items:
                self.add_finding(value.place, f"`{key}` has no values", "name at least one, or leave the key out")
            for item in items:
                self.check_value(key, item, _MATRIX[key])
            listed[key] = [item.plain for item in items]
        return listed

    def _read_demand(self, node: Node) -> Dict[str, float]:
        """Read what is asked: a number for float32, or one for each precision."""
        if _POSITIVE.accepts(node.plain):
            return {"float32": float(node.plain)}
        return {key: float(value.plain) for key, value in self.read_mapping(node, _DEMAND, "`demand`").items()}


def _resolve_target(target: str, folder: Path) -> str:
    """Let the path of a target begin at the folder of the file that names it."""
    source, colon, name = target.rpartition(":")
    is_file = source.endswith(".py") or "/" in source
    return f"{folder / source}{colon}{name}" if is_file and not Path(source).is_absolute() else target


def _describe_value(node: Node) -> str:
    if isinstance(node.value, dict):
        return "a mapping"
    return "a list" if isinstance(node.value, list) else repr(node.value)


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
