"""This reader turns `benchmarks.yml` into checked entries: targets, their matrix, and the speed-ups they must reach.

`porting bench FILE` uses it. All faults of a file are reported at once, each with its line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from porting.bench.choices import COUNTS, MATRIX_KEYS, NAMED_SETTINGS, PRECISIONS, BenchSettings
from porting.bench.documents import Node, read_document
from porting.diagnostics import Finding, Place, suggest_name

__all__ = ["FileEntry", "read_benchmarks"]


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
    """Read a file of benchmarks; its faults are returned as findings (T001), all at once.

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
                advice = suggest_name(key, kinds, otherwise=f"known keys are {', '.join(kinds)}")
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
