"""Say which programs a rule judges, and where in them.

A rule says it once, and the runner applies it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Callable, Iterable, Iterator, Optional, Set, Tuple

from porting.diagnostics import Finding
from porting.source.rules.program_objects import make_guess
from porting.source.rules.reading import Reading

__all__ = ["MAY_BE_BARE", "Programs", "Rule", "apply_rule", "collect_lines", "rule"]

MAY_BE_BARE = "on another way to this line the model is not ported, and needs it"
"""What a finding of a step says that is one of a port's only on some ways."""

Find = Callable[[Reading], Iterator[Optional[Finding]]]


class Programs(Enum):
    """The programs that a rule judges."""

    ALL = "all"
    PLAIN = "plain"
    PORTED = "ported"


@dataclass(frozen=True)
class Rule:
    """A search for one kind of place, and its scope."""

    find: Find
    programs: Programs = Programs.ALL
    in_host_loops: bool = True
    """Whether it also judges a port whose loop stays on the host by intention."""
    of_steps: bool = False
    """Whether it is about the step of a training: in a program with a port, the port's."""
    everywhere: bool = False
    """Whether it also judges what runs only where no port does, as what is wrong in any program."""
    with_poptorch: Optional[bool] = None
    """Whether it judges only programs that use PopTorch by itself, or never those; None judges both."""


def rule(
    programs: Programs = Programs.ALL,
    *,
    in_host_loops: bool = True,
    of_steps: bool = False,
    everywhere: bool = False,
    with_poptorch: Optional[bool] = None,
) -> Callable[[Find], Rule]:
    """Make a rule of a search."""
    return lambda find: Rule(find, programs, in_host_loops, of_steps, everywhere, with_poptorch)


def apply_rule(rule: Rule, reading: Reading) -> Tuple[Finding, ...]:
    """Find what a rule finds within its scope: never where no port runs, in a program that has one."""
    if rule not in reading.found:
        # some rules leave to others what these tell
        reading.found[rule] = tuple(_iter_in_scope(rule, reading))
    return reading.found[rule]


def _iter_in_scope(rule: Rule, reading: Reading) -> Iterator[Finding]:
    if rule.programs is (Programs.PLAIN if reading.is_ported else Programs.PORTED):
        return
    if reading.has_host_loop and not rule.in_host_loops:
        return
    if rule.with_poptorch is not None and rule.with_poptorch is not reading.is_of_poptorch:
        return
    for finding in rule.find(reading):
        is_elsewhere = (
            finding is not None
            and finding.place is not None
            and (reading.is_skipped(finding.place) or reading.reach.is_of_others(finding.place.file))
        )
        if finding is None or finding.place is None or is_elsewhere:
            continue
        if not reading.is_ported:
            yield finding
        elif rule.everywhere or reading.is_judged(finding.place, of_steps=rule.of_steps):
            may_be_bare = rule.of_steps and any(map(reading.may_be_bare, reading.list_calls(finding.place)))
            told = replace(finding, notes=(*finding.notes, MAY_BE_BARE)) if may_be_bare else finding
            yield make_guess(told, "no program was found that comes here") if reading.is_missed(told.place) else told


def collect_lines(rules: Iterable[Rule], reading: Reading) -> Set[Tuple[str, int]]:
    """Collect the lines of which some rules tell, each as a file and its number."""
    places = (finding.place for one in rules for finding in apply_rule(one, reading))
    return {(place.file, place.line) for place in places if place is not None}
