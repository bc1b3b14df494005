"""Apply all rules to all facts of a program, and give their findings in the order of the source.

A preflight begins with it.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from porting.diagnostics import Finding
from porting.source.facts import Facts
from porting.source.project import Project
from porting.source.rules import RULES, Reading, apply_rule
from porting.source.walk import collect_facts

__all__ = ["check_source"]


def check_source(project: Project, facts: Optional[Facts] = None) -> List[Finding]:
    """Find what stands between a program and an IPU, sorted by file and line; nothing is imported or run.

    In a program that has a port the findings are its faults, in one without what a port will need. A place has one
    finding of each code. `facts` are what was collected of the program, if it was.

    >>> from porting.source.project import read_programs
    >>> check_source(read_programs([]))
    []
    """
    facts = collect_facts(project) if facts is None else facts
    # files that the walk was led to are known only now
    reading = Reading(facts, project.units, project.configurations)
    found: Dict[Tuple[str, str, int], Finding] = {}
    for rule in RULES:
        for finding in apply_rule(rule, reading):
            if finding.place is not None:
                found.setdefault((finding.code, finding.place.file, finding.place.line), finding)
    return sorted(found.values(), key=_get_order)


def _get_order(finding: Finding) -> Tuple[str, int, int, str]:
    assert finding.place is not None
    return finding.place.file, finding.place.line, finding.place.column or 0, finding.code
