"""A folder's programs divided into groups that share no files; those with a port are judged by other measures."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Dict, Iterator, List, Set, Tuple

from porting.source.project import Module, Project, Unit
from porting.source.rules.reading import is_for_ports

__all__ = ["ProgramGroup", "divide_programs"]

_PORT_MODULES = ("porting", "poptorch", "popdist")


@dataclass(frozen=True)
class ProgramGroup:
    """The files of programs that share some, and whether these programs have a port."""

    files: Tuple[str, ...]
    is_ported: bool


def divide_programs(project: Project) -> List[ProgramGroup]:
    """Divide the files that were asked for into groups that have nothing to do with each other, by what they import.

    A program is a file that no other one imports, and all that imports lead to from there; of files that import each
    other it is the first. Programs with a port and plain ones are in different groups, even if they share files.
    """
    imported: Dict[str, List[str]] = {}
    for path in project.entries:
        _follow_imports(project, path, imported)
    has_port = {path: any(map(_imports_port, module.units)) for path, module in project.modules.items()}
    parts = {path: _list_parts(path, imported) for path in _find_programs(project.entries, imported)}
    groups = []
    for is_ported in (True, False):
        alike = [found for found in parts.values() if any(has_port[part] for part in found) is is_ported]
        groups += [ProgramGroup(tuple(sorted(files)), is_ported) for files in _join_overlapping(alike)]
    return groups


def _join_overlapping(sets: List[Set[str]]) -> List[Set[str]]:
    """Join sets that have something in common."""
    homes: Dict[str, Set[str]] = {}
    for found in sets:
        joined = set(found)
        for home in {id(homes[part]): homes[part] for part in found if part in homes}.values():
            joined |= home
        homes.update(dict.fromkeys(joined, joined))
    return list({id(home): home for home in homes.values()}.values())


def _follow_imports(project: Project, path: str, imported: Dict[str, List[str]]) -> None:
    waiting = [path]
    while waiting:
        here = waiting.pop()
        if here not in imported:
            imported[here] = [module.path for module in _list_imports(project, project.modules[here])]
            waiting.extend(imported[here])


def _list_imports(project: Project, importer: Module) -> Iterator[Module]:
    """List the program's own modules that a module imports, wherever the import stands."""
    found = []
    for unit in importer.units:
        for node in ast.walk(unit.tree):
            if isinstance(node, ast.Import):
                found += [project.find_module(alias.name, importer) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                # `from package import part` may mean a module, too
                for name in ["", *(alias.name for alias in node.names)]:
                    full = ".".join(filter(None, [node.module, name]))
                    found.append(
                        project.find_relative(full, level=node.level, importer=importer)
                        if node.level
                        else project.find_module(full, importer)
                    )
    return (module for module in found if module is not None and module.path != importer.path)


def _find_programs(entries: List[str], imported: Dict[str, List[str]]) -> List[str]:
    """Find the files that no other one needs; of a circle that nobody needs, the first."""
    inner = {path for parts in imported.values() for path in parts}
    programs = [path for path in entries if path not in inner]
    covered = {part for path in programs for part in _list_parts(path, imported)}
    for path in entries:
        if path not in covered:
            programs.append(path)
            covered |= _list_parts(path, imported)
    return sorted(programs, key=entries.index)


def _list_parts(path: str, imported: Dict[str, List[str]]) -> Set[str]:
    parts: Set[str] = set()
    waiting = [path]
    while waiting:
        part = waiting.pop()
        if part not in parts:
            parts.add(part)
            waiting.extend(imported.get(part, ()))
    return parts


def _imports_port(unit: Unit) -> bool:
    """Tell whether a file has to do with ports already."""
    if not any(name in line for line in unit.lines for name in _PORT_MODULES):
        return False
    names = [alias.name for node in ast.walk(unit.tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(unit.tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return any(map(is_for_ports, names))
