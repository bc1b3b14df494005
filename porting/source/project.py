"""A user's program as modules: which file an import means, and which files are programs of their own."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from porting.diagnostics import Finding
from porting.source.files import SourceFile, Unit, list_sources, read_source

__all__ = ["MOST_FOLLOWED_LINES", "Module", "Project", "Unit", "read_programs"]


MOST_FOLLOWED_LINES = 30_000
"""When so many lines have been read of files that only imports lead to, no more are."""


@dataclass(frozen=True, eq=False)
class Module:
    """A file of the program as the module that it is when it is imported."""

    name: str
    path: str
    units: Tuple[Unit, ...]
    is_package: bool = False


@dataclass
class Project:
    """The modules of a user's program, those that imports lead to among them, and the faults of its files.

    `entries` are the paths that were asked for, a folder's files each on its own, in order.
    """

    modules: Dict[str, Module] = field(default_factory=dict)
    """By path."""
    entries: List[str] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    num_followed_lines: int = 0
    """The lines of files that only imports lead to."""
    known: Mapping[str, Module] = field(default_factory=dict)
    """Modules that were read before, by path; their files are not read again."""
    _by_suffix: Dict[str, List[Module]] = field(default_factory=dict)
    _folders: Dict[Tuple[str, str], Optional[Module]] = field(default_factory=dict)

    @property
    def _may_follow(self) -> bool:
        """Whether another file is read that was not asked for; a program of a large library would bring all of it."""
        return self.num_followed_lines < MOST_FOLLOWED_LINES

    def add_file(self, path: str) -> Optional[Module]:
        """Read a file unless it is known, with its faults; None where nothing of it could be read."""
        path = os.path.normpath(path)
        if path in self.modules:
            return self.modules[path]
        if path in self.known:
            # the faults of the file were told when it was read
            return self._add_source(SourceFile(path, self.known[path].units))
        source = read_source(path)
        self.findings.extend(source.findings)
        if not source.units:
            return None
        return self._add_source(source)

    def _add_source(self, source: SourceFile) -> Module:
        path = source.path
        name = name_module(path)
        module = Module(name, path, source.units, is_package=os.path.basename(path) == "__init__.py")
        self.modules[path] = module
        parts = _split_path(path)
        for count in range(1, len(parts) + 1):
            self._by_suffix.setdefault(".".join(parts[-count:]), []).append(module)
        return module

    def find_module(self, name: str, importer: Module) -> Optional[Module]:
        """Find the file that an absolute import means: beside the importer, above it, or anywhere in the program.

        A file that was not asked for is read from beside the importer, as Python would find it for a script.
        """
        if is_library(name):
            return None
        folder = os.path.dirname(importer.path)
        key = (name, folder)
        if key not in self._folders:
            self._folders[key] = self._find_near(name, folder) or self._find_by_suffix(name, importer)
        return self._folders[key]

    def find_relative(self, name: str, *, level: int, importer: Module) -> Optional[Module]:
        """Find the file that `from ..name import` means; `name` may be empty."""
        folder = os.path.dirname(importer.path)
        for _ in range(level - 1):
            folder = os.path.dirname(folder) or os.pardir
        return self._find_in(folder, name)

    def _find_near(self, name: str, folder: str) -> Optional[Module]:
        """Look beside the importer and, while these are packages or the program's, in the folders above."""
        for _ in range(6):
            found = self._find_in(folder, name)
            if found is not None:
                return found
            if not os.path.exists(os.path.join(folder, "__init__.py")):
                return None
            folder = os.path.dirname(folder)
        return None

    def _find_in(self, folder: str, name: str) -> Optional[Module]:
        base = os.path.normpath(os.path.join(folder, *name.split("."))) if name else os.path.normpath(folder or ".")
        for path in (os.path.join(base, "__init__.py"), base + ".py"):
            path = os.path.normpath(path)
            if path in self.modules:
                return self.modules[path]
            if self._may_follow and os.path.isfile(path):
                module = self.add_file(path)
                self.num_followed_lines += sum(len(unit.lines) for unit in module.units) if module else 0
                return module
        return None

    def _find_by_suffix(self, name: str, importer: Module) -> Optional[Module]:
        if name.partition(".")[0] in _STANDARD_LIBRARY:
            return None
        found = [module for module in self._by_suffix.get(name, []) if module is not importer]
        near = os.path.dirname(importer.path)
        return max(found, key=lambda module: len(os.path.commonprefix([module.path, near])), default=None)


# a file of such a name somewhere else in the program is not what is imported
_STANDARD_LIBRARY = frozenset(getattr(sys, "stdlib_module_names", sys.builtin_module_names))
_LIBRARIES = frozenset(
    {"torch", "torchvision", "numpy", "poptorch", "transformers", "timm", "ignite", "lightning", "tqdm", "porting"}
    | {"accelerate", "pytorch_lightning", "popdist", "popart", "matplotlib", "scipy", "sklearn", "pandas"}
)
_PROGRAMS = ("porting.recipes.", "porting.models.")


def is_library(name: str) -> bool:
    """Tell whether a module is a library's, of which the table of names says what there is to say.

    >>> is_library("torch.nn"), is_library("porting.recipes.first_port.workload")
    (True, False)
    """
    return name.partition(".")[0] in _LIBRARIES and not name.startswith(_PROGRAMS)


def name_module(path: str) -> str:
    """Name the module of a file as an import from outside its packages would.

    >>> name_module("train.py")
    'train'
    """
    folder, file = os.path.split(path)
    stem = os.path.splitext(file)[0]
    parts = [] if stem == "__init__" else [stem]
    while folder and os.path.exists(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    return ".".join(parts) or stem


def _split_path(path: str) -> List[str]:
    parts = list(Path(os.path.splitext(path)[0]).parts)
    if parts and parts[-1] == "__init__":
        parts.pop()
    return [part for part in parts if part.isidentifier()][-8:]


def read_programs(
    paths: Iterable[Union[str, os.PathLike[str]]], known: Optional[Mapping[str, Module]] = None
) -> Project:
    """Read scripts, folders, notebooks and modules (`pkg.module`) without running anything of them.

    What cannot be read or parsed is a finding of the project: X002 to X005. Files that imports lead to are read when
    they are asked for. Files among the modules `known`, by path, are taken as they were read.
    """
    project = Project(known=known or {})
    for path in paths:
        files, findings = list_sources(_find_path(os.fspath(path)))
        project.findings.extend(findings)
        for file in files:
            file = os.path.normpath(file)
            if file not in project.entries and project.add_file(file) is not None:
                project.entries.append(file)
    return project


def _find_path(name: str) -> str:
    """Find the path of a module that is named with dots; other names are paths already."""
    if os.path.exists(name) or not all(part.isidentifier() for part in name.split(".")):
        return name
    folder = os.curdir
    search: Optional[Sequence[str]] = [os.curdir, *sys.path]
    for part in name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, search)
        if spec is None:
            return name
        search = spec.submodule_search_locations
        folder = spec.origin if spec.origin and os.path.isfile(spec.origin) else next(iter(search or []), name)
    return os.path.relpath(folder) if folder.startswith(os.getcwd() + os.sep) else folder
