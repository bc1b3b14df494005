"""`benchmarks.yml`: which targets are measured, in which matrix, and what is asked of them; checked line by line."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from porting.diagnostics import Finding, Place

from .choices import COUNTS, MATRIX_KEYS, PRECISIONS
from .documents import Node, read_document

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
    """What a value has to be, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(least: int) -> _Kind:
    return _Kind(
        f"a whole number from {least} on",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
    )


def _one_of(*names: str) -> _Kind:
    return _Kind(f"one of {', '.join(names)}", lambda value: value in names)


_TEXT = _Kind("a text", lambda value: isinstance(value, str) and bool(value))
_YES_NO = _Kind("true or false", lambda value: isinstance(value, bool))
_POSITIVE = _Kind("a number above 0", lambda value: _is_number(value) and value > 0)
_ANYTHING = _Kind("", lambda value: True)

_SETTINGS: Mapping[str, _Kind] = {
    "rounds": _whole(1),
    "turn_seconds": _POSITIVE,
    "calls_per_turn": _whole(1),
    "parity_steps": _whole(1),
    "seed": _whole(0),
    "threads": _whole(1),
    "device": _one_of("auto", "ipu", "sim"),
    "eager_precision": _one_of("float32", "bfloat16", "float16"),
    "eager_memory_format": _one_of("contiguous", "channels-last"),
    "eager_optimizer": _one_of("fused", "default"),
    "memory": _YES_NO,
    "data": _YES_NO,
    "start_up_runs": _whole(0),
    "cold_starts": _whole(0),
}
_MATRIX: Mapping[str, _Kind] = {
    key: _whole(1) if key in COUNTS else _one_of(*PRECISIONS) if key == "precision" else _TEXT for key in MATRIX_KEYS
}
_DEMAND: Mapping[str, _Kind] = {precision: _POSITIVE for precision in PRECISIONS}
_ENTRY: Mapping[str, _Kind] = {
    "target": _TEXT,
    "matrix": _ANYTHING,
    "demand": _ANYTHING,
    "repeats": _whole(1),
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
    top = reader.mapping(root, _FILE, "the file")
    shared = reader.mapping(top["settings"], _SETTINGS, "`settings`") if "settings" in top else {}
    entries: List[FileEntry] = []
    if "benchmarks" not in top:
        reader.find(root.place, "there are no `benchmarks`", "write `benchmarks:` with an entry for each")
    elif not isinstance(top["benchmarks"].value, dict) or not top["benchmarks"].value:
        reader.find(top["benchmarks"].place, "`benchmarks` has no entries", "write a name for each, with its `target`")
    else:
        settings = {key: node.plain for key, node in shared.items()}
        entries = [
            reader.entry(name, entry.node, settings, path.parent) for name, entry in top["benchmarks"].value.items()
        ]
    return entries, reader.findings


class _Reader:
    """Collects what is wrong while it reads."""

    def __init__(self) -> None:
        self.findings: List[Finding] = []

    def find(self, place: Place, message: str, help: str) -> None:
        self.findings.append(Finding("T001", message=message, place=place, help=help))

    def mapping(self, node: Node, kinds: Mapping[str, _Kind], owner: str) -> Dict[str, Node]:
        """Return the known keys whose values are right."""
        if not isinstance(node.value, dict):
            self.find(node.place, f"{owner} is {_shown(node)}", f"write keys and values: {', '.join(kinds)}")
            return {}
        right: Dict[str, Node] = {}
        for key, (key_place, value) in node.value.items():
            if key not in kinds:
                self.find(key_place, f"unknown key `{key}` in {owner}", _advice(key, kinds))
            elif not kinds[key].accepts(value.plain):
                self.find(value.place, f"`{key}` is {_shown(value)}", f"`{key}` takes {kinds[key].words}")
            else:
                right[key] = value
        return right

    def entry(self, name: str, node: Node, shared: Mapping[str, Any], folder: Path) -> FileEntry:
        known = self.mapping(node, _ENTRY, f"`{name}`")
        # an entry without a target is the suite's workload of that name
        plain = {key: known[key].plain for key in ("target", "repeats", "loader", "timeout") if key in known}
        settings = self.mapping(known["settings"], _SETTINGS, "`settings`") if "settings" in known else {}
        return FileEntry(
            name=name,
            target=_from_folder(plain.get("target", name), folder),
            matrix=self._matrix(known["matrix"]) if "matrix" in known else {},
            demand=self._demand(known["demand"]) if "demand" in known else None,
            repeats=plain.get("repeats", 1),
            loader=_from_folder(plain["loader"], folder) if "loader" in plain else None,
            timeout=plain.get("timeout"),
            settings={**shared, **{key: value.plain for key, value in settings.items()}},
        )

    def _matrix(self, node: Node) -> Dict[str, List[Any]]:
        """Read a matrix, where one value may stand for a list of one."""
        listed: Dict[str, List[Any]] = {}
        for key, value in self.mapping(node, dict.fromkeys(_MATRIX, _ANYTHING), "`matrix`").items():
            items = value.value if isinstance(value.value, list) else [value]
            for item in items:
                if not _MATRIX[key].accepts(item.plain):
                    self.find(item.place, f"`{key}` is {_shown(item)}", f"`{key}` takes {_MATRIX[key].words}")
            if not items:
                self.find(value.place, f"`{key}` has no values", "name at least one, or leave the key out")
            listed[key] = [item.plain for item in items]
        return listed

    def _demand(self, node: Node) -> Dict[str, float]:
        """Read what is asked: a number for float32, or one for each precision."""
        if _POSITIVE.accepts(node.plain):
            return {"float32": float(node.plain)}
        return {key: float(value.plain) for key, value in self.mapping(node, _DEMAND, "`demand`").items()}


def _from_folder(target: str, folder: Path) -> str:
    """Let the path of a target begin at the folder of the file that names it."""
    source, colon, name = target.rpartition(":")
    is_file = source.endswith(".py") or "/" in source
    return f"{folder / source}{colon}{name}" if is_file and not Path(source).is_absolute() else target


def _shown(node: Node) -> str:
    if isinstance(node.value, dict):
        return "a mapping"
    return "a list" if isinstance(node.value, list) else repr(node.value)


def _advice(key: str, kinds: Mapping[str, _Kind]) -> str:
    near = difflib.get_close_matches(key, list(kinds), n=1)
    return f"did you mean `{near[0]}`?" if near else f"known keys are {', '.join(kinds)}"
