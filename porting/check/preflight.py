"""Put a preflight together, of what rules say of the sources and of captures of a step.

It decides what of both is told; `porting check` runs it.
"""

from __future__ import annotations

import gc
import linecache
import os
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from porting.check.allowances import Allowance, divide_findings, list_allowances
from porting.check.baseline import divide_known, write_baseline
from porting.check.cells import point_at_file
from porting.check.coverage import Coverage, measure_coverage
from porting.check.divided_programs import ProgramGroup, divide_programs
from porting.check.report import Report
from porting.check.selection import Selection
from porting.check.training_on_import import find_training_on_import
from porting.diagnostics import ExecutableError, Finding, Place, join_names, say_number, suggest_file
from porting.source.checks import check_source
from porting.source.facts import Facts
from porting.source.project import Project, read_programs
from porting.source.rules.wordings import read_wordings
from porting.source.text_values import name_from_here
from porting.source.walk import collect_facts
from porting.support.garbage_pause import garbage_pause

__all__ = ["SourceLook", "assemble_report", "look_at_sources"]


@dataclass(frozen=True)
class SourceLook:
    """What reading the sources of programs came to: findings, comments that allow some, and what was read."""

    findings: Tuple[Finding, ...]
    allowances: Dict[str, List[Allowance]] = field(default_factory=dict)
    coverage: Coverage = Coverage()
    is_ported: bool = True
    ported_files: FrozenSet[str] = frozenset()
    training_files: Mapping[str, int] = field(default_factory=dict)
    """The files that train when they are imported, by their full path, and the line of the backward pass."""


def look_at_sources(paths: Sequence[str]) -> SourceLook:
    """Read scripts, folders, notebooks and modules, and apply all rules; nothing of them is run or imported.

    Raises ExecutableError E020 for a path where nothing is, and for a folder without a program.
    """
    # the trees of many files are millions of objects, all of which stay; looking through them for those that can go
    # takes as long as parsing, and so those of the last look wait for the next one, or for the end of the process
    gc.unfreeze()
    with garbage_pause():
        try:
            return _look_at_sources(paths)
        finally:
            gc.freeze()


def _look_at_sources(paths: Sequence[str]) -> SourceLook:
    project = read_programs(paths)
    _require_paths(paths, project)
    groups = divide_programs(project)
    findings: List[Finding] = []
    needs: List[Finding] = []
    facts: List[Facts] = []
    for group in groups:
        (findings if group.is_ported else needs).extend(_check_group(group, project, facts))
    _let_cells_be_shown(project)
    _keep_from_reading(project.findings)
    refused = (point_at_file(finding).place for finding in project.findings)
    files = {*project.modules, *(place.file for place in refused if place is not None)}
    coverage = measure_coverage(project, facts, num_files=len(files))
    texts = [*((unit.file, unit.text) for unit in project.units), *project.configurations]
    return SourceLook(
        findings=(*project.findings, *coverage.imports, *findings, *needs),
        allowances={file: list_allowances(text, file) for file, text in texts},
        coverage=coverage,
        is_ported=not needs and any(group.is_ported for group in groups),
        training_files=_collect_training_files(project),
        ported_files=frozenset(file for group in groups if group.is_ported for file in group.files),
    )


def assemble_report(
    program: str,
    sources: SourceLook,
    *,
    model_report: Optional[Report] = None,
    selection: Selection = Selection(),  # noqa: B008 - frozen
    baseline: Optional[Path] = None,
    writes_baseline: bool = False,
) -> Report:
    """Join what sources and model say, and leave out what is not wanted, is allowed, or is known.

    With `writes_baseline` all that is left becomes the baseline. Raises PortingError X007 where that cannot be read or
    written.
    """
    model = Report() if model_report is None else model_report
    found = _join_findings(sources.findings, model.findings)
    left, allowed = divide_findings(
        [finding for finding in found if selection.includes(finding.code)],
        sources.allowances,
        # of those that were looked for
        is_judged=lambda code: selection.includes(code) and (model_report is not None or code in read_wordings()),
    )
    left = [finding for finding in left if selection.includes(finding.code)]
    known, num_obsolete = [], 0
    if baseline is not None and writes_baseline:
        write_baseline(baseline, left)
        left, known = [], left
    elif baseline is not None:
        left, known, num_obsolete = divide_known(baseline, left)
    coverage = sources.coverage.accept([*allowed, *known])
    if model_report is not None:
        # its step is the training
        coverage = replace(coverage, has_training=True)
    return Report(
        left,
        program=program,
        looked_at=[*coverage.looked_at, *model.looked_at],
        coverage=coverage,
        # what a model lacks alone is a fault, not a part of its port
        is_ported=sources.is_ported or all(finding.code == "X024" for finding in sources.findings),
        num_allowed=len(allowed),
        num_known=len(known),
        # what was not wanted was not looked for
        num_obsolete=0 if selection != Selection() else num_obsolete,
        facts=[*model.facts, *coverage.facts],
    )


def _check_group(group: ProgramGroup, project: Project, facts: List[Facts]) -> List[Finding]:
    """Apply the rules to the files of a group; where they fail on one, the other groups are judged all the same."""
    part = project.select(group.files)
    try:
        facts.append(collect_facts(part))
        project.modules.update(part.modules)
        return check_source(part, facts[-1])
    except Exception as error:
        place = Place(group.files[0], 1)
        raised = traceback.extract_tb(error.__traceback__)[-1]
        return [
            Finding(
                "X008",
                place=place,
                notes=(
                    f"{type(error).__name__}: {error}",
                    f"raised at {'/'.join(Path(raised.filename).parts[-3:])}:{raised.lineno}",
                    *([f"with {say_number(len(group.files) - 1, 'other file')}"] if len(group.files) > 1 else []),
                ),
                help="this is a fault of porting: report it with the file; all others are judged",
            )
        ]


def _join_findings(of_sources: Sequence[Finding], of_model: Sequence[Finding]) -> List[Finding]:
    """Join findings; what a capture has seen of a line takes the place of what its source says, whatever the code."""
    # files are named from the present folder, as those of sources are
    captured = [
        replace(finding, place=finding.place and replace(finding.place, file=name_from_here(finding.place.file)))
        for finding in of_model
    ]
    seen = {subject for finding in captured for subject in _list_subjects(finding)}
    return [*(finding for finding in of_sources if seen.isdisjoint(_list_subjects(finding))), *captured]


def _list_subjects(finding: Finding) -> Tuple[Tuple[Any, ...], ...]:
    """List what a finding is about: its line, for codes of its family, and what begins at its column, for all."""
    place = finding.place
    if place is None:
        return ()
    return (finding.code[0], place.file, place.line), (place.file, place.line, place.column or finding.code)


def _require_paths(paths: Sequence[str], project: Project) -> None:
    refused = {finding.place.file for finding in project.findings if finding.place is not None}
    if not project.modules and not project.findings:
        raise ExecutableError.of(
            "E020",
            message=f"there is no program in {join_names(paths)}: nothing was read",
            help="name a folder with scripts or notebooks",
        )
    for path in paths:
        if not Path(path).exists() and str(Path(path)) in refused:
            raise ExecutableError.of(
                "E020",
                message=f"there is no program `{path}`",
                help=suggest_file(
                    path,
                    otherwise="name a script, a notebook, a folder, a module, or PROGRAM:FUNCTION: `train.py:make`",
                ),
            )


def _let_cells_be_shown(project: Project) -> None:
    """Tell Python's cache of source lines those of cells, which are no files, so that findings show them."""
    for module in project.modules.values():
        for unit in module.units:
            if unit.file != module.path:
                lines = [f"{line}\n" for line in unit.lines]
                # without a time of change nobody looks for a file
                linecache.cache[unit.file] = (sum(map(len, lines)), None, lines, unit.file)


def _collect_training_files(project: Project) -> Dict[str, int]:
    programs = {path: module.units[0] for path, module in project.modules.items() if path.endswith(".py")}
    trains = {path: unit for path, unit in programs.items() if "backward" in unit.text}
    lines = {path: find_training_on_import(unit.tree) for path, unit in trains.items()}
    return {os.path.realpath(path): line for path, line in lines.items() if line is not None}


def _keep_from_reading(findings: Sequence[Finding]) -> None:
    """Tell Python's cache of source lines that there are none in pipes and devices, which would be waited for."""
    for finding in findings:
        file = "" if finding.place is None else finding.place.file
        if os.path.exists(file) and not os.path.isfile(file):
            linecache.cache[file] = (0, None, [], file)
