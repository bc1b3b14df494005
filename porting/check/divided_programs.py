"""A folder's programs divided into groups that share no files; those with a port are judged by other measures."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Dict, Iterator, List, Set, Tuple

from porting.source.project import Module, Project
from porting.source.rules.names import is_for_ports

__all__ = ["ProgramGroup", "divide_programs"]


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
    for path in _order_entries(project):
        _follow_imports(project, path, imported)
    modules = list(project.modules.items())
    has_port = {path: any(map(is_for_ports, project.follow_imports(module).names)) for path, module in modules}
    parts = {path: _collect_parts(path, imported) for path in _list_programs(project.entries, imported)}
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
    for here in waiting:
        if here not in imported:
            imported[here] = [module.path for module in project.follow_imports(project.modules[here]).modules]
            waiting += imported[here]


def _order_entries(project: Project) -> List[str]:
    """List first the programs that no other one's text imports: the folders of the rest's imports are theirs."""
    named = {path: set(_iter_named(project.modules[path])) for path in project.entries}
    counts = Counter(name for names in named.values() for name in names)

    def is_named(path: str) -> bool:
        stem = project.modules[path].name.rpartition(".")[2]
        return counts[stem] > (stem in named[path])

    return sorted(project.entries, key=is_named)


def _iter_named(module: Module) -> Iterator[str]:
    for unit in module.units:
        for line in unit.lines:
            if "import" in line:
                yield from _WORD.findall(line)


_WORD = re.compile(r"[^\W\d]\w*")


def _list_programs(entries: List[str], imported: Dict[str, List[str]]) -> List[str]:
    """List the files that no other one needs; of a circle that nobody needs, the first."""
    inner = {path for parts in imported.values() for path in parts}
    programs = [path for path in entries if path not in inner]
    covered = {part for path in programs for part in _collect_parts(path, imported)}
    for path in entries:
        if path not in covered:
            programs.append(path)
            covered |= _collect_parts(path, imported)
    return sorted(programs, key=entries.index)


def _collect_parts(path: str, imported: Dict[str, List[str]]) -> Set[str]:
    parts = {path}
    waiting = [path]
    for part in waiting:
        more = set(imported.get(part, ())) - parts
        parts |= more
        waiting += more
    return parts
