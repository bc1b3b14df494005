"""Where Python would look for an import: the folders of a program's `sys.path`, and what lies in them."""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from porting.source.text_values import name_from_here

__all__ = [
    "Folders",
    "SearchPath",
    "Spot",
    "go_up",
    "is_declared",
    "is_installed",
    "list_targets",
    "make_search_path",
    "read_configurations",
]

_MARKS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml")
_DECLARATIONS = re.compile(r"requirements.*\.txt|pyproject\.toml|setup\.(py|cfg)|environment.*\.ya?ml|Pipfile")
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(eq=False)
class SearchPath:
    """The folders in which the imports of one program are looked for.

    `folders` are those of Python's own `sys.path`: the script's, PYTHONPATH, and what the program adds. `guessed` are
    those that a program is started from, or installed with; they come after all of these.
    """

    folders: List[str]
    guessed: Tuple[str, ...] = ()
    repository: str = ""

    def add(self, folder: str, *, is_first: bool) -> None:
        """Add a folder as the program does."""
        if folder not in self.folders:
            self.folders.insert(0 if is_first else len(self.folders), folder)


@dataclass(frozen=True)
class Spot:
    """Where a module lies: its file, if it has one, and the folders of its own modules, if it is a package."""

    path: str = ""
    folders: Tuple[str, ...] = ()
    is_compiled: bool = False

    @property
    def is_namespace(self) -> bool:
        """Whether it is a package without an `__init__.py`."""
        return not self.path


@dataclass
class Folders:
    """What lies in folders, each listed once."""

    _names: Dict[str, FrozenSet[str]] = field(default_factory=dict)
    _spots: Dict[Tuple[str, ...], Optional[Spot]] = field(default_factory=dict)

    def locate(self, parts: Sequence[str], folders: Sequence[str]) -> List[Spot]:
        """Find the module `a.b.c` from its first part on; the spots end where a part is not found."""
        spots: List[Spot] = []
        for part in parts:
            key = (part, *folders)
            if key not in self._spots:
                self._spots[key] = self._find_part(part, folders)
            spot = self._spots[key]
            if spot is None:
                break
            spots.append(spot)
            folders = spot.folders
        return spots

    def list_modules(self, folders: Sequence[str]) -> List[str]:
        """List the modules and packages of a package."""
        names = {name for folder in folders for name in self._collect_names(folder)}
        stems = {name[:-3] for name in names if name.endswith(".py")} | {name for name in names if "." not in name}
        return sorted(stem for stem in stems if stem.isidentifier() and stem != "__init__")

    def _find_part(self, part: str, folders: Sequence[str]) -> Optional[Spot]:
        """Find a module as Python's finder does: a package, else a file, else what all folders of that name make up."""
        portions: List[str] = []
        for folder in folders:
            names = self._collect_names(folder)
            base = os.path.normpath(os.path.join(folder, part)) if part in names or part + ".py" in names else ""
            if part in names and "__init__.py" in self._collect_names(base):
                return Spot(os.path.join(base, "__init__.py"), (base,))
            compiled = next((part + suffix for suffix in EXTENSION_SUFFIXES if part + suffix in names), "")
            if compiled:
                return Spot(os.path.join(folder, compiled), is_compiled=True)
            if part + ".py" in names:
                return Spot(base + ".py")
            if part in names and os.path.isdir(base):
                portions.append(base)
        return Spot(folders=tuple(portions)) if portions else None

    def _collect_names(self, folder: str) -> FrozenSet[str]:
        if folder not in self._names:
            self._names[folder] = frozenset()
            with suppress(OSError):
                self._names[folder] = frozenset(os.listdir(folder or os.curdir))
        return self._names[folder]


def make_search_path(script: str) -> SearchPath:
    """Make the path of a program: as Python starts it, and the folders that it may have been started from.

    These are the folder above its package, those up to the repository's (else the one above its own), each with its
    `src`, the present folder unless the repository is in it, and what is installed to be edited.
    """
    own = os.path.dirname(script)
    top = own
    while os.path.exists(os.path.join(top, "__init__.py")) and os.path.dirname(os.path.abspath(top)) != top:
        top = go_up(top)
    given = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and not _is_ours(folder)]
    repository = _find_repository(os.path.abspath(own))
    above = [top, go_up(top)]
    while repository and _is_below(above[-1], repository) and len(above) < _DEEPEST:
        above.append(go_up(above[-1]))
    if repository and not _is_below(top, repository):
        del above[1:]  # the repository, or the folder of a repository that is a package
    guessed = [folder for up in above for folder in (up, os.path.normpath(os.path.join(up, "src")))]
    folders = [own, *([] if top == own else [top]), *map(os.path.normpath, given)]
    if os.path.basename(os.path.abspath(top)) in _INSTALLED:
        # of what is installed only its own package is the program's
        return SearchPath([own], (), repository)
    # a project in a folder of the present one is started from its own
    here = () if repository.startswith(os.getcwd() + os.sep) else ("",)
    return SearchPath(folders, (*guessed, *here, *list_edited()), repository)


_DEEPEST = 12


def go_up(folder: str) -> str:
    """Name the folder above, as paths are named: the present one is the empty text."""
    up = os.path.normpath(os.path.join(folder, os.pardir))
    return "" if up == os.curdir else up


def _is_below(folder: str, repository: str) -> bool:
    return os.path.abspath(folder).startswith(os.path.join(repository, ""))


@functools.lru_cache(maxsize=1024)
def _find_repository(folder: str) -> str:
    """Find the nearest folder above that is marked as a project's, by full paths; empty where none is."""
    above = (Path(folder), *Path(folder).parents)
    return next((str(path) for path in above if any((path / mark).exists() for mark in _MARKS)), "")


def list_edited() -> Tuple[str, ...]:
    """List the folders of what is installed to be edited: lines of `.pth` files, and tables of setuptools' finders."""
    return tuple(itertools.chain.from_iterable(map(_read_edited, filter(_is_of_packages, sys.path))))


def _read_text(path: Path) -> str:
    """Read a file that only helps: one that cannot be read says nothing."""
    try:
        return path.read_text("utf-8", "replace") if path.is_file() else ""
    except OSError:
        return ""


def _is_ours(folder: str) -> bool:
    """Tell whether a folder is that of porting itself, which is a library to programs, whoever edits it."""
    return os.path.exists(os.path.join(folder, "porting", "__init__.py"))


def _is_of_packages(folder: str) -> bool:
    return os.path.basename(folder) in _INSTALLED


@functools.lru_cache(maxsize=16)
def _read_edited(folder: str) -> Tuple[str, ...]:
    found: List[str] = []
    for path in sorted(Path(folder).glob("*.pth")):
        lines = map(str.strip, _read_text(path).splitlines())
        found += [os.path.join(folder, line) for line in lines if line and not line.startswith(("#", "import "))]
    for path in sorted(Path(folder).glob("__editable__*finder.py")):
        found += [os.path.dirname(target) for name, target in _read_mapping(path).items() if Path(target).stem == name]
    return tuple(os.path.normpath(entry) for entry in found if os.path.isdir(entry) and not _is_ours(entry))


def _read_mapping(path: Path) -> Dict[str, str]:
    """Read which package lies where; the finder is not run."""
    mapping = re.search(r"^MAPPING\b[^=\n]*= *(\{.*?\})\s*$", _read_text(path), re.MULTILINE | re.DOTALL)
    try:
        return dict(ast.literal_eval(mapping[1])) if mapping else {}
    except (SyntaxError, ValueError):
        return {}


@functools.lru_cache(maxsize=4096)
def is_installed(top: str) -> bool:
    """Tell whether a package of this name is installed beside porting; it is not imported."""
    return PathFinder.find_spec(top, [folder for folder in sys.path if _is_of_packages(folder)]) is not None


@functools.lru_cache(maxsize=16)
def read_configurations(repository: str) -> Tuple[Tuple[str, str], ...]:
    """Read the configurations of a project, each with its path, of which Hydra makes something."""
    patterns = _CONFIGURATIONS if repository else ()
    paths = [path for pattern in patterns for path in sorted(Path(repository).glob(pattern))]
    return tuple((name_from_here(str(path)), _read_text(path)) for path in paths[:_MOST_CONFIGURATIONS])


@functools.lru_cache(maxsize=16)
def list_targets(repository: str) -> Tuple[str, ...]:
    """List what the configurations of a project name as `_target_`, which Hydra imports by its name."""
    texts = (text for _path, text in read_configurations(repository))
    return tuple(dict.fromkeys(name for text in texts for name in _TARGET.findall(text)))


_MOST_CONFIGURATIONS = 500
_CONFIGURATIONS = ("*.y*ml", "*conf*/**/*.y*ml", "*/*conf*/**/*.y*ml")
_TARGET = re.compile(r"""^\s*-?\s*_target_:\s*["']?((?:[^\W\d]\w*\.)+[^\W\d]\w*)""", re.MULTILINE)


def is_declared(top: str, repository: str) -> bool:
    """Tell whether a project's requirements name a library."""
    return bool(repository) and top.lower().replace("_", "-") in _collect_declared(repository)


@functools.lru_cache(maxsize=64)
def _collect_declared(repository: str) -> FrozenSet[str]:
    words: List[str] = []
    for path in Path(repository).glob("*"):
        if _DECLARATIONS.fullmatch(path.name):
            words += re.findall(r"[A-Za-z][\w-]*", _read_text(path))
    return frozenset(word.lower().replace("_", "-") for word in words)
