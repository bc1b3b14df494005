"""Find which file of a user's program an import means, and which files are programs of their own.

The walk follows imports by it.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from dataclasses import dataclass, field, replace
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

from porting.diagnostics import Finding, join_names
from porting.source.files import Unit, list_sources, read_source
from porting.source.imports import ImportedName, iter_imports
from porting.source.library import NAMES, is_known_library
from porting.source.search_path import (
    Folders,
    SearchPath,
    Spot,
    go_up,
    is_declared,
    is_installed,
    list_targets,
    make_search_path,
    read_configurations,
)
from porting.source.text_values import ANYTHING, list_added_folders, name_from_here

__all__ = ["MOST_FOLLOWED_LINES", "Imported", "Module", "Project", "Unit", "read_programs"]


MOST_FOLLOWED_LINES = 60_000
"""When so many lines have been read of files that only imports lead to, no more are."""


@dataclass(frozen=True, eq=False)
class Module:
    """A file of the program as the module that it is when it is imported.

    `folders` are those of a package's own modules. A package without an `__init__.py` has no units.
    """

    name: str
    path: str
    units: Tuple[Unit, ...] = ()
    folders: Tuple[str, ...] = ()

    @property
    def is_namespace(self) -> bool:
        """Whether it is a package without a file."""
        return self.path in self.folders


@dataclass(frozen=True)
class Imported:
    """What a module imports of the program: modules, those that are named by a pattern or a table, what is missing."""

    modules: Tuple[Module, ...] = ()
    computed: Tuple[Module, ...] = ()
    missing: Tuple[Tuple[ImportedName, Finding], ...] = ()
    names: Tuple[str, ...] = ()
    """The absolute names of all that it imports, of libraries, too."""


@dataclass
class Project:
    """The modules of a user's program, those that imports lead to among them, and the faults of its files.

    `entries` are the paths that were asked for, a folder's files each on its own, in order.
    """

    modules: Dict[str, Module] = field(default_factory=dict)
    """By path."""
    entries: List[str] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    libraries: Set[str] = field(default_factory=set)
    """The first names of what is imported and not the program's."""
    unread: Dict[str, str] = field(default_factory=dict)
    """The files that imports lead to and that were not read, and why."""
    _num_lines: List[int] = field(default_factory=lambda: [0])
    _read: Dict[str, Module] = field(default_factory=dict)
    _spots: Dict[Tuple[str, ...], Module] = field(default_factory=dict)
    _searched: Dict[str, SearchPath] = field(default_factory=dict)
    _found: Dict[Tuple[str, int, str], List[Module]] = field(default_factory=dict)
    _imported: Dict[Tuple[str, bool], Imported] = field(default_factory=dict)
    _folders: Folders = field(default_factory=Folders)

    @property
    def units(self) -> List[Unit]:
        """All that was read, a notebook's cells one by one."""
        return [unit for module in self.modules.values() for unit in module.units]

    def select(self, paths: Iterable[str]) -> Project:
        """Take some of the modules as a project; what is read for it later is known to this one, too."""
        modules = {path: self.modules[path] for path in paths}
        return replace(self, modules=modules, entries=[path for path in modules if path in self.entries])

    def add_file(self, path: str, folders: Tuple[str, ...] = ()) -> Optional[Module]:
        """Read a file unless it is known, with its faults; None where nothing of it could be read."""
        path = os.path.normpath(path)
        key = os.path.realpath(path)
        module = self._read.get(key)
        if module is None:
            source = read_source(path)
            self.findings.extend(source.findings)
            if not source.units:
                return None
            if os.path.basename(path) == "__init__.py":
                folders = folders or (os.path.dirname(path),)
            module = self._read[key] = Module(name_module(path), path, source.units, folders)
        self.modules.setdefault(module.path, module)
        return module

    @property
    def configurations(self) -> List[Tuple[str, str]]:
        """The paths and texts of the configurations that the program makes something of."""
        makers = [module for module in self.modules.values() if any(map(_makes_configured, module.units))]
        folders = dict.fromkeys(self._get_search(module).repository for module in makers)
        return [one for folder in folders for one in read_configurations(folder)]

    # ---------------------------------------------------------------- which file an import means

    def resolve_import(self, name: str, importer: Module, level: int = 0) -> List[Module]:
        """Find what `import a.b.c` means: `a`, `a.b` and `a.b.c`; nothing where it is a library's or is not found.

        It is looked for as Python does, in the folders of the program's path, and then where the program may have been
        started from. With a level it is `from ..a.b import`, looked for in the packages above the importer.
        """
        key = (name, level, importer.path)
        found = self._found.get(key)
        if found is None:
            found = self._resolve_name(name, importer, level)
            if not found:
                return []
            self._found[key] = found
        for module in found:
            if module.units:
                self.modules.setdefault(module.path, module)
        return found

    def _resolve_name(self, name: str, importer: Module, level: int) -> List[Module]:
        if is_library(name) and not level:
            return []
        parts = name.split(".") if name else []
        search = self._get_search(importer)
        for number, folders in enumerate(self._iter_searched(importer, level)):
            if level and not parts:
                return [self._find_package(folders, search)]
            if number and parts[0] in _STANDARD_LIBRARY:
                break  # Python's own comes before what is only guessed
            spots = self._folders.locate(parts, folders)
            is_whole = len(spots) == len(parts) and not spots[-1].is_compiled
            if is_whole and not (spots[-1].is_namespace and not level and is_foreign(parts[0], search)):
                return self._read_spots(parts, spots, search)
        return []

    def _iter_searched(self, importer: Module, level: int) -> Iterator[Sequence[str]]:
        own = importer.folders or (os.path.dirname(importer.path),)
        if level:
            for _ in range(level - 1):
                own = tuple(go_up(folder) for folder in own)
            yield own
            return
        search = self._get_search(importer)
        yield search.folders
        for folder in (*own, *search.guessed):
            yield [folder]

    def _find_package(self, folders: Sequence[str], search: SearchPath) -> Module:
        """Find the package that lies in a folder."""
        spots = self._folders.locate([os.path.basename(os.path.abspath(folders[0]))], list(map(go_up, folders)))
        spot = next((spot for spot in spots if spot.folders), Spot(folders=tuple(folders)))
        return self._read_spots([""], [spot], search)[0]

    def _read_spots(self, parts: Sequence[str], spots: Sequence[Spot], search: SearchPath) -> List[Module]:
        modules = []
        for number, spot in enumerate(spots):
            name = ".".join(parts[: number + 1])
            module = None if is_library(name) or f"{name}." in _PROGRAMS else self._follow_file(spot, search)
            modules.append(module or self._make_empty(spot, search))
        return modules

    def _make_empty(self, spot: Spot, search: SearchPath) -> Module:
        """Make the module of a package without a file, or of one that is not read."""
        key = (spot.path, *spot.folders)
        if key not in self._spots:
            path = spot.path or spot.folders[0]
            self._spots[key] = Module(name_module(path), path, (), spot.folders)
            self._get_search(self._spots[key], search)
        return self._spots[key]

    def _follow_file(self, spot: Spot, search: SearchPath) -> Optional[Module]:
        """Read a file that an import leads to; a program of a large library would bring all of it."""
        if spot.is_namespace:
            return None
        known = os.path.realpath(spot.path) in self._read
        if not known and self._num_lines[0] >= MOST_FOLLOWED_LINES:
            self.unread[spot.path] = f"more than {MOST_FOLLOWED_LINES:,} lines are imported"
            return None
        module = self.add_file(spot.path, spot.folders)
        if module is None:
            self.unread[spot.path] = "it cannot be read"
        elif not known:
            self._num_lines[0] += sum(len(unit.lines) for unit in module.units)
        if module is not None:
            self._get_search(module, search)
        return module

    def _get_search(self, module: Module, given: Optional[SearchPath] = None) -> SearchPath:
        """Get the path of a module, with what it adds: its own, or that of the program that has brought it."""
        search = self._searched.get(module.path)
        if search is None:
            search = self._searched[module.path] = given or make_search_path(module.path)
            for unit in module.units:
                if any("sys" in line and "path" in line or "addsitedir" in line for line in unit.lines):
                    for folder, is_first in list_added_folders(unit.tree, module.path):
                        search.add(folder, is_first=is_first)
        return search

    # ---------------------------------------------------------------- what a module imports

    def follow_all(self) -> None:
        """Read all that imports lead to from the modules that are known."""
        known = set(self.modules.values())
        waiting = list(self.modules.values())
        # the nearest come first, as not all of a large library are read
        for module in waiting:
            found = [one for one in self.follow_imports(module).modules if one not in known]
            known.update(found)
            waiting += found

    def follow_imports(self, module: Module) -> Imported:
        """Find all that a module imports of the program, wherever the import stands, and what of it is missing."""
        key = (module.path, module.path in self.entries)
        if key not in self._imported:
            self._imported[key] = Imported()  # of a module that imports itself
            self._imported[key] = self._follow_imports(module, is_main=key[1])
        return self._imported[key]

    def _follow_imports(self, module: Module, *, is_main: bool) -> Imported:
        modules: List[Module] = []
        computed: List[Module] = []
        missing: List[Tuple[ImportedName, Finding]] = []
        names: List[str] = []
        for unit in module.units:
            for wanted in (*iter_imports(unit, is_main=is_main), *self._iter_configured(unit, module)):
                names += [] if wanted.level else [wanted.name]
                found, lost = self._follow_import(wanted, module)
                modules += found
                computed += found if ANYTHING in wanted.name else found[-1:] if wanted.is_computed else []
                missing += [(wanted, self._report_missing(wanted, name, unit, module)) for name in lost]
        read = [found for found in dict.fromkeys(modules) if found.units and found is not module]
        return Imported(tuple(read), tuple(dict.fromkeys(computed)), tuple(missing), tuple(names))

    def _iter_configured(self, unit: Unit, module: Module) -> Iterator[ImportedName]:
        """List what the project's configurations name, where a file makes something of them."""
        if _makes_configured(unit):
            for target in list_targets(self._get_search(module).repository):
                name, _, part = target.rpartition(".")
                yield ImportedName(unit.tree, name, 0, (part,), is_optional=True, is_computed=True)

    def _follow_import(self, wanted: ImportedName, importer: Module) -> Tuple[List[Module], List[str]]:
        """Find the modules of an import, and name those that are neither found nor a library's."""
        if ANYTHING in wanted.name:
            return list(self._iter_matching(wanted, importer)), []
        found = list(self.resolve_import(wanted.name, importer, wanted.level))
        if not found:
            return [], [wanted.name] if self._is_missing(wanted, importer) else []
        package = found[-1]
        lost = []
        for part in wanted.parts if package.folders else ():
            inner = self.resolve_import(part, package, 1)
            found += inner
            if not inner and package.is_namespace and not wanted.is_optional and not self._is_compiled(part, package):
                lost.append(f"{wanted.name}.{part}" if wanted.name else part)
        return found, lost

    def _is_compiled(self, part: str, package: Module) -> bool:
        return any(spot.is_compiled for spot in self._folders.locate([part], package.folders))

    def _iter_matching(self, wanted: ImportedName, importer: Module) -> Iterator[Module]:
        """List the modules of the program whose names fit a pattern, as `models.*_net`."""
        fixed, _, _rest = wanted.name.partition(ANYTHING)
        package = fixed.rpartition(".")[0]
        found = self.resolve_import(package, importer, wanted.level) if package or wanted.level else []
        for part in self._folders.list_modules(found[-1].folders) if found else ():
            if fnmatch.fnmatchcase(f"{package}.{part}" if package else part, wanted.name):
                yield from self.resolve_import(part, found[-1], 1)

    def _is_missing(self, wanted: ImportedName, importer: Module) -> bool:
        """Tell whether an import that was not found is the program's own, and not a library's.

        It is a library's if the first part of its name is Python's own, known, installed, or among the requirements,
        and no file or package of that name lies in a folder of the program's path.
        """
        top, *rest = wanted.name.split(".")
        if is_library(wanted.name) and not wanted.level:
            self.libraries.add(top)
            return False
        spots: List[Spot] = []
        for folders in self._iter_searched(importer, wanted.level):
            spots = max(spots, self._folders.locate([top, *rest], folders), key=len)
        if any(spot.is_compiled for spot in spots):
            return False
        is_own = wanted.level > 0 or bool(spots) and not spots[0].is_namespace
        if not is_own and is_foreign(top, self._get_search(importer)):
            self.libraries.add(top)
            return False
        return not wanted.is_optional

    def _report_missing(self, wanted: ImportedName, name: str, unit: Unit, importer: Module) -> Finding:
        folders = [
            folder or os.curdir for searched in self._iter_searched(importer, wanted.level) for folder in searched
        ]
        looked = join_names(dict.fromkeys(folders), most=_MOST_FOLDERS)
        return Finding(
            "X024",
            message=f"`{'.' * wanted.level}{name}` was not found, and what it holds was not read",
            place=unit.place_of(wanted.node),
            notes=f"looked for in {looked}",
            help=(
                "check it where it is started from, or name the folder of its modules in PYTHONPATH",
                "a library that is not installed is known from the project's requirements",
            ),
        )


_MOST_FOLDERS = 6


# what the table of names tells more of than their files would
_LIBRARIES = frozenset({"torch", "torchvision", "numpy", "poptorch", "popdist", "popart", "porting"})
_STANDARD_LIBRARY = frozenset(getattr(sys, "stdlib_module_names", sys.builtin_module_names))
_PROGRAMS = ("porting.recipes.", "porting.models.")


def is_library(name: str) -> bool:
    """Tell whether a module is a library's whatever lies in the program's folders.

    >>> is_library("torch.nn"), is_library("porting.recipes.first_port.workload")
    (True, False)
    """
    return name.partition(".")[0] in _LIBRARIES and not name.startswith(_PROGRAMS)


def is_foreign(top: str, search: SearchPath) -> bool:
    """Tell whether a name that no file of the program has is a library's: known, installed, or required."""
    is_known = top in _STANDARD_LIBRARY or is_known_library(top) or top in NAMES["libraries"]
    return is_known or is_installed(top) or is_declared(top, search.repository)


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


def read_programs(paths: Iterable[Union[str, os.PathLike[str]]]) -> Project:
    """Read scripts, folders, notebooks and modules (`pkg.module`) without running anything of them.

    What cannot be read or parsed is a finding of the project: X002 to X005. Files that imports lead to are read when
    they are asked for.
    """
    project = Project()
    for path in paths:
        files, findings = list_sources(_find_path(os.fspath(path)))
        project.findings.extend(findings)
        for file in files:
            module = project.add_file(file)
            if module is not None and module.path not in project.entries:
                project.entries.append(module.path)
    return project


def _find_path(name: str) -> str:
    """Find the path of a module that is named with dots; other names are paths already."""
    if os.path.exists(name) or not all(part.isidentifier() for part in name.split(".")):
        return name
    spots = Folders().locate(name.split("."), [os.curdir, *sys.path])
    if len(spots) < name.count(".") + 1:
        return name
    return name_from_here(spots[-1].path or spots[-1].folders[0])


def _makes_configured(unit: Unit) -> bool:
    """Tell whether a file makes something of a configuration, as Hydra does."""
    return "instantiate(" in unit.text
