"""The programs of a folder: which files run together, and what happens in each of them."""

from __future__ import annotations

from typing import Dict, Iterator, List, Set

from porting.source.facts import Facts
from porting.source.project import Project

__all__ = ["split_facts"]

_MOST_PROGRAMS = 40


def split_facts(project: Project, facts: Facts) -> List[Facts]:
    """Part what was collected of a folder by programs: a file that no other imports, and all that it imports.

    A folder may hold a plain program beside its port, so that only one of them is ported. What happens in a file that
    several programs import is a fact of each. Where a folder has very many programs, those that share a file are taken
    together. Works on the imports that `collect_facts` has found.
    """
    groups = [group for group in _group_files(project) if group]
    if len(groups) < 2:
        return [facts]
    return [_select_facts(facts, group) for group in groups]


def _group_files(project: Project) -> Iterator[Set[str]]:
    imported = {path for paths in project.imported.values() for path in paths}
    roots = [path for path in project.modules if path not in imported]
    closures = [_follow_imports(project, root) for root in roots]
    rest = set(project.modules).difference(*closures)
    while rest:
        # files that import each other and that nothing else does
        closures.append(_follow_imports(project, min(rest)))
        rest -= closures[-1]
    return iter(closures if len(closures) <= _MOST_PROGRAMS else _join_overlapping(closures))


def _follow_imports(project: Project, root: str) -> Set[str]:
    found: Set[str] = set()
    waiting = [root]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(project.imported.get(path, ()))
    return found


def _join_overlapping(groups: List[Set[str]]) -> List[Set[str]]:
    owners: Dict[str, Set[str]] = {}
    for group in groups:
        joined = set(group)
        for path in group:
            joined |= owners.get(path, set())
        for path in joined:
            owners[path] = joined
    return list({id(group): group for group in owners.values()}.values())


def _select_facts(facts: Facts, paths: Set[str]) -> Facts:
    def is_inside(file: str) -> bool:
        return file.partition(":cell ")[0] in paths

    return Facts(
        calls=[call for call in facts.calls if is_inside(call.where.file)],
        statements=[statement for statement in facts.statements if is_inside(statement.where.file)],
        imports=[fact for fact in facts.imports if is_inside(fact.where.file)],
        things=[thing for thing in facts.things if thing.place is not None and is_inside(thing.place.file)],
    )
