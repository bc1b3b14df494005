"""Run `porting check`, which says what stands between a training program and an IPU.

It says so before the program is run on one.
"""

from __future__ import annotations

import argparse
import linecache
import os
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, FrozenSet, List, Mapping, Optional, Set, Tuple

from porting.check.formats import REPORT_FORMATS, write_report
from porting.check.html_page import write_report_page
from porting.check.preflight import assemble_report, look_at_sources
from porting.check.report import Report
from porting.check.selection import Selection, UnknownCodeError, read_codes
from porting.cli import EXIT_DONE, EXIT_FAILED, EXIT_NOT_RUN, refuse_usage
from porting.cli.output_files import require_folders, write_output
from porting.cli.program_names import split_program
from porting.diagnostics import FORMATS as FINDING_FORMATS
from porting.diagnostics import (
    ExecutableError,
    Finding,
    Place,
    PortingError,
    print_finding,
    require_extra,
    say_number,
    show,
)
from porting.support.progress import show_progress

if TYPE_CHECKING:  # loads torch
    from porting.cli.programs import LoadedProgram

__all__ = ["FORMATS", "add_arguments", "run"]

FORMATS = REPORT_FORMATS
"""The formats of this verb, one more than other verbs have."""

_HALVES = ("float16", "mixed")
_MOST_MEASURED_WEIGHTS = 200_000_000

_EPILOG = """\
PROGRAM is a script, a notebook, a folder, a module (`package.train`), or
PROGRAM:FUNCTION as for `porting export`: a function that returns (model, loss,
batch), or a reference model, as `gpt:gpt2_small`. Sources are read, and never
run or imported. Only FUNCTION is run, and its module imported, unless that would
start a training; the step that it gives is captured.

  $ porting check train.py
  $ porting check train.py:make --html findings.html
  $ porting check . --baseline known.json --write-baseline
  $ porting check . --baseline known.json --source-only
  $ porting check train.py --fix --diff

A comment `# porting: allow host-read` allows a finding on its line, or on the
line below. For a plain program the findings are what its port needs.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", help="what to look at, as train.py or train.py:make")
    wanted = parser.add_argument_group("what is told")
    for name, what in (("select", "tell these findings alone"), ("ignore", "leave these findings out")):
        wanted.add_argument(
            f"--{name}", action="append", default=[], metavar="CODES", help=f"{what}: L001,host-read,O (a family)"
        )
    wanted.add_argument("--baseline", type=Path, metavar="FILE", help="leave out the findings of this file")
    wanted.add_argument("--write-baseline", action="store_true", help="write all findings into the baseline")
    wanted.add_argument("--allow-unread", action="store_true", help="take what was not read for clean, too")
    wanted.add_argument("--source-only", action="store_true", help="run nothing: of PROGRAM:FUNCTION read PROGRAM")
    wanted.add_argument("--quiet", action="store_true", help="print the summary alone")
    wanted.add_argument("--html", type=Path, metavar="FILE", help="write the report as one HTML page as well")
    fixes = parser.add_argument_group("what is put right")
    fixes.add_argument("--fix", action="store_true", help="change the programs where a finding has a mechanical fix")
    fixes.add_argument("--diff", action="store_true", help="with --fix: show what would change, and write nothing")
    model = parser.add_argument_group("the model of PROGRAM:FUNCTION")
    model.add_argument(
        "--allow-frozen", action="append", default=[], metavar="NAME", help="a value that may be compiled in (C020)"
    )
    data = parser.add_argument_group("the loader of PROGRAM:FUNCTION, if it gives one by the name `loader`")
    data.add_argument("--epoch", action="store_true", help="read a whole epoch, not its first batches alone")
    data.add_argument("--instances", type=int, default=1, metavar="N", help="processes that share the data (default 1)")
    data.add_argument(
        "--max-executables", type=int, default=8, metavar="N", help="buckets for so many executables (default 8)"
    )
    data.add_argument("--compile-seconds", type=float, metavar="S", help="what one executable takes to compile")
    data.add_argument("--step-seconds", type=float, metavar="S", help="what a step of the longest batch takes")


def run(arguments: argparse.Namespace) -> int:
    """Look at the programs, print the report, and tell by the status whether something was found."""
    fault = _find_usage_fault(arguments)
    if fault:
        return refuse_usage("check", fault)
    try:
        selection = Selection(read_codes(arguments.select), read_codes(arguments.ignore))
    except UnknownCodeError as error:
        return refuse_usage("check", str(error))
    try:
        require_folders(arguments.html)
        if arguments.fix:
            report = _fix_programs(arguments, selection)
        else:
            report, _files = _make_report(arguments, selection, writes_baseline=arguments.write_baseline)
        if arguments.html is not None:
            write_output(arguments.html, write_report_page(report).encode())
    except PortingError as error:
        report = Report(program=" ".join(arguments.programs), failures=[error.finding])
    if not arguments.diff and (report.looked_at or arguments.format != "text"):
        told = report.summary if arguments.quiet else write_report(report, arguments.format)
        if arguments.format == "text":
            show(told)
        else:
            print(told)
    for failure in report.failures:
        print_finding(failure, arguments.format if arguments.format in FINDING_FORMATS else "text")
    if report.failures:
        return EXIT_NOT_RUN
    return EXIT_DONE if report.is_clean or arguments.allow_unread and not report.standing else EXIT_FAILED


def _find_usage_fault(arguments: argparse.Namespace) -> str:
    """Say which arguments do not go together; empty where all do."""
    if arguments.write_baseline and arguments.baseline is None:
        return "--write-baseline needs --baseline FILE"
    if arguments.diff and not arguments.fix:
        return "--diff needs --fix"
    if min(arguments.max_executables, arguments.instances) < 1:
        return "--max-executables and --instances are at least 1"
    return ""


def _fix_programs(arguments: argparse.Namespace, selection: Selection) -> Report:
    """Write the mechanical fixes and look again; or print them as a diff."""
    require_extra("libcst", extra="fix", message="`--fix` changes programs with LibCST, which is not installed")
    from porting.source.patches.fixes import list_unproven, propose_fixes, write_fixes

    loaded = set(sys.modules)
    report, ported_files = _make_report(arguments, selection, writes_baseline=False)
    fixes = propose_fixes(report.findings, ported_files=ported_files)
    fixed = [finding for fix in fixes for finding in fix.fixed]
    shown = list_unproven(report.findings, fixes, ported_files=ported_files)
    if arguments.diff:
        sys.stdout.write("".join(fix.diff for fix in fixes))
        if shown:
            print(
                "these are never written, as nothing around them proves that the program still runs:", file=sys.stderr
            )
            sys.stderr.write("".join(fix.diff for fix in shown))
        told = f"would fix {say_number(len(fixed), 'finding')} of {len(report.findings)}; nothing is written"
        print(told, file=sys.stderr)
        return report
    write_fixes(fixes)
    _forget_modules(loaded)
    # the lines have moved, and a fix may have put more right than it was made for
    report, _files = _make_report(arguments, selection, writes_baseline=arguments.write_baseline)
    told = f"fixed: {say_number(len(fixed), 'finding')} in {say_number(len(fixes), 'file')}"
    unproven = f"not written, as nothing proves them: {sum(len(fix.fixed) for fix in shown)}; `--fix --diff` shows them"
    return replace(report, facts=[*report.facts, told, *([unproven] if shown else [])])


def _forget_modules(known: Set[str]) -> None:
    """Forget the modules of the user's that have been loaded, and the lines of their files."""
    kept = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and not file.startswith(kept):
            del sys.modules[name]
    linecache.checkcache()


def _make_report(
    arguments: argparse.Namespace, selection: Selection, *, writes_baseline: bool
) -> Tuple[Report, FrozenSet[str]]:
    """Make the report of all programs, and list the files that have a port."""
    named: List[Tuple[str, Optional[str]]] = [split_program(text) for text in arguments.programs]
    if arguments.source_only:
        named = [(source, None) for source, _function in named]
    reports: List[Report] = []
    failures: List[Finding] = []
    with show_progress(sys.stderr) as tell:
        tell("reading sources")
        sources = look_at_sources([_name_source(source, function) for source, function in named])
        for text, (source, function) in zip(arguments.programs, named):
            if function is not None:
                tell(f"capturing {text}")
                try:
                    # what the user's code prints is no part of the report
                    _refuse_training(text, source, sources.training_files)
                    with redirect_stdout(sys.stderr):
                        reports.append(_check_function(text, arguments))
                except PortingError as error:
                    failures.append(error.finding)
    report = assemble_report(
        " ".join(Path.cwd().name if text == "." else text for text in arguments.programs),
        sources,
        model_report=_join_reports(reports),
        selection=selection,
        # one that is going to be written hides nothing of what can be fixed before
        baseline=None if arguments.write_baseline and not writes_baseline else arguments.baseline,
        writes_baseline=writes_baseline,
    )
    if not failures and not report.standing and not report.coverage.has_training:
        failures.append(_report_no_training(report, source_only=arguments.source_only).finding)
    return replace(report, failures=failures), sources.ported_files


def _report_no_training(report: Report, *, source_only: bool) -> ExecutableError:
    """Say that there was nothing to judge, which is no clean word."""
    return ExecutableError.of(
        "X025",
        message=f"nothing in {report.program} trains a model: {', '.join(report.looked_at)}",
        help="name the script that trains; a model alone is judged as PROGRAM:FUNCTION"
        + (", without `--source-only`" if source_only else ""),
    )


def _refuse_training(text: str, source: str, training_files: Mapping[str, int]) -> None:
    """Raise E021 for a program that would train as soon as it is imported."""
    line = training_files.get(os.path.realpath(source))
    if line is not None:
        raise ExecutableError.of(
            "E021",
            message=f"`{text}` is not loaded: an import of `{source}` would start its training",
            place=Place(source, line),
            label="a backward pass that the import comes to",
            help="keep what starts the training under `if __name__ == '__main__':`",
        )


def _name_source(source: str, function: Optional[str]) -> str:
    """Name what to read for a program: a reference model's own module for the model."""
    if function is None:
        return source
    # loads torch, which a program with a function needs anyway
    missing = next((name for name in ("torch", "porting.models") if find_spec(name) is None), None)
    if missing is not None:
        raise PortingError.of(
            "X001",
            message=f"`{function}` of `{source}` cannot be run: `{missing}` is not installed",
            help=(
                "run it with `porting check`, which `pip install ipu-porting` brings, and torch with it",
                "`--source-only` reads the program, and runs nothing",
            ),
        )
    from porting.cli.programs import ProgramName, is_reference_model

    name = ProgramName(source, function)
    return f"porting.models.{source}" if is_reference_model(name) else source


def _check_function(text: str, arguments: argparse.Namespace) -> Report:
    """Run the function of a program and check the model, loss and batch that it returns."""
    from porting.check.model_check import check
    from porting.cli.part_places import place_findings

    program = _load_lightly(text)
    get = program.made.get if isinstance(program.made, Mapping) else partial(getattr, program.made)
    report = check(
        program.model,
        program.loss,
        program.batch,
        optimizer=program.optimizer,
        loader=get("loader", None),
        options=program.options,
        allow_frozen=[name for names in arguments.allow_frozen for name in names.split(",")],
        instances=arguments.instances,
        whole_epoch=arguments.epoch,
        max_executables=arguments.max_executables,
        compile_seconds=arguments.compile_seconds,
        step_seconds=arguments.step_seconds,
        name=text,
        **program.loss_settings,
    )
    return replace(report, findings=place_findings(report.findings, program.places))


def _load_lightly(text: str) -> LoadedProgram:
    """Load a program without memory for its weights, unless what they compute is to be measured and they are few."""
    from porting.check.light_models import make_light
    from porting.cli.programs import load_program

    load = partial(load_program, text, draws_batch=True)
    program = make_light(load)
    is_measured = program.options is not None and program.options.precision in _HALVES
    num_weights = sum(parameter.numel() for parameter in program.model.parameters())
    return load() if is_measured and num_weights <= _MOST_MEASURED_WEIGHTS else program


def _join_reports(reports: List[Report]) -> Optional[Report]:
    if not reports:
        return None
    return replace(
        reports[0],
        findings=[finding for report in reports for finding in report.findings],
        looked_at=[text for report in reports for text in report.looked_at],
        facts=[fact for report in reports for fact in report.facts],
    )
