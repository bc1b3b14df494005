"""Carry a conversion out, from a dry run by a plan in one style or the other and its proof on a copy to the writing.

`porting convert` and `porting eject` are this.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, List, Optional, Tuple

from porting.cli import EXIT_DONE, EXIT_FAILED
from porting.convert.bindings import Undecided
from porting.convert.columns import ConvertedProgram, Proof
from porting.convert.commands import DEFAULT_PORT_ARGUMENTS
from porting.convert.conversion import PLAIN, POPTORCH, STYLES, Conversion, plan_conversion
from porting.convert.dry_run import DryRun, run_program
from porting.convert.ejection import plan_ejection
from porting.convert.leftovers import list_leftovers
from porting.convert.port_proof import prove_ports
from porting.convert.program import read_program
from porting.convert.proof import prove_conversion
from porting.convert.report import describe_conversion, write_report
from porting.convert.sources.poptorch import is_of_poptorch
from porting.convert.targets import Target, as_own_process, find_target
from porting.convert.writing import require_destination, write_project
from porting.diagnostics import PortingError, join_names, say_number
from porting.support.progress import show_progress
from porting.support.project_copies import find_project, link_project

__all__ = ["Outcome", "convert_project", "eject_project"]

_DRY_STEPS = 2
_DRY_SECONDS = 120
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What a conversion came to: its report, a note on what was written or an error of that, and the exit status."""

    text: str
    note: str
    status: int
    error: Optional[PortingError] = None


def convert_project(arguments: argparse.Namespace) -> Outcome:
    """Convert the project of the command line, and write it if that is asked for and proven."""
    target = find_target(arguments.path, arguments.command)
    with show_progress(sys.stderr) as tell, as_own_process(target):
        made, proof = _convert(target, arguments, tell)
    return _finish(target, made, proof, arguments, is_enough=arguments.plan)


def eject_project(arguments: argparse.Namespace) -> Outcome:
    """Take the port out of the project of the command line, and write it if that is asked for and proven."""
    target = find_target(arguments.path, arguments.command)
    with show_progress(sys.stderr) as tell, as_own_process(target):
        made = plan_ejection(str(target.root), target.script, target.arguments, shlex.split(arguments.port_args))
        proof = _prove(target, made, arguments, tell)[0] if target.is_run and made.changed else None
    return _finish(target, made, proof, arguments, is_enough=False)


def _finish(
    target: Target, made: Conversion, proof: Optional[Proof], arguments: argparse.Namespace, *, is_enough: bool
) -> Outcome:
    """Write the project if that is asked for and proven, and the report in any case."""
    is_proven = proof is not None and proof.is_proven
    is_fine = made.is_whole and (is_proven or is_enough or not made.changed)
    status = EXIT_DONE if is_fine else EXIT_FAILED
    if not arguments.write or not made.changed:
        return Outcome(_report(made, proof, arguments), "", status)
    if not is_proven and not arguments.unproven:
        note = "nothing is written: not all columns passed; --unproven writes all the same"
        return Outcome(_report(made, proof, arguments), note, EXIT_FAILED)
    place = target.root if arguments.out is None else arguments.out
    try:
        linked = write_project(target.root, made.changed, before=made.before, out=arguments.out)
    except PortingError as error:
        # the proof took its time, and is told all the same
        return Outcome(_report(made, proof, arguments), "", EXIT_FAILED, error)
    beside = f"; links to the old project: {join_names(linked)}" if linked else ""
    note = f"written: {say_number(len(made.changed), 'file')} in {place}{beside}"
    return Outcome(_report(made, proof, arguments, written=place), note, status)


def _report(
    made: Conversion, proof: Optional[Proof], arguments: argparse.Namespace, *, written: Optional[Path] = None
) -> str:
    if arguments.format != "json":
        is_beside = written is not None and arguments.out is not None
        return write_report(made, proof, sys.stdout, shows_diff=arguments.diff, shows_commands=is_beside)
    said = [
        f"--{name.replace('_', '-')}={getattr(arguments, name)}"
        for name in ("style", "port_args")
        if getattr(arguments, name, None) not in (None, DEFAULT_PORT_ARGUMENTS)
    ]
    said += ["--instances"] if getattr(arguments, "instances", False) else []
    place = None if written is None else str(written)
    return json.dumps(describe_conversion(made, proof, options=said, written=place), indent=2)


def _convert(target: Target, arguments: argparse.Namespace, tell: Tell) -> Tuple[Conversion, Optional[Proof]]:
    """Convert in the wanted style, or in the first one that leaves nothing and is proven, or in the most proven one."""
    notes: List[str] = []
    tell(f"reading {target.script}")
    root = str(target.root)
    program = read_program(root, os.path.join(root, target.script))
    # a program of PopTorch's does not train without a device
    is_observed = target.is_run and not arguments.plan and not is_of_poptorch(program)
    seen = _observe(target, tell, notes) if is_observed else None
    sites = None if seen is None else seen.sites
    # a loop on the host joins no gradients over instances
    styles = [arguments.style] if arguments.style else ["idiomatic"] if arguments.instances else [*STYLES]
    if seen is not None and len(styles) > 1 and any(max(one, default=0) > 1 for one in seen.num_backward.values()):
        styles.remove("idiomatic")
        notes.append("the idiomatic style was left: gradients of several backward passes make one step")
    tried: List[Tuple[Conversion, Proof, List[Undecided]]] = []
    for style in styles:
        tell(f"planning, style {style}")
        known = {"sites": sites, "program": program, "instances": arguments.instances}
        made = plan_conversion(root, target.script, target.arguments, style=style, **known)
        made.notes += notes
        is_last = style == styles[-1] or made.style != style
        if made.left and not is_last:
            one = made.left[0]
            path = os.path.relpath(os.path.realpath(one.path), os.path.realpath(target.root))
            notes.append(f"the {style} style was not taken: {path}:{one.line}: {one.reason}")
            continue
        is_tried = target.is_run and not arguments.plan and bool(made.changed)
        if not is_tried:
            return made, None
        proof, found = _prove(target, made, arguments, tell)
        if proof.is_proven:
            return made, proof
        tried.append((made, proof, found))
        if is_last:
            break
        notes.append(f"the {style} style was not taken: {proof.first_lack}")
    made, best, found = max(tried, key=lambda one: (not one[0].left, one[1].num_passed))
    made.left += found
    return made, best


def _observe(target: Target, tell: Tell, notes: List[str]) -> DryRun:
    tell(f"running {target.script} for {_DRY_STEPS} steps")
    script = str(target.root / target.script)
    seen = run_program(script, target.arguments, num_steps=_DRY_STEPS, seconds=_DRY_SECONDS, folder=str(target.root))
    if seen.error:
        notes.append(f"the dry run ended after {say_number(seen.num_steps, 'step')}: {seen.error}")
    return seen


def _prove(
    target: Target, made: Conversion, arguments: argparse.Namespace, tell: Tell
) -> Tuple[Proof, List[Undecided]]:
    """Prove a conversion on a copy, which commands name as the folder that is written; list what was found there, too.

    One that could not be written is refused before, as a proof takes its time.
    """
    if arguments.write:
        require_destination(target.root, made.changed, before=made.before, out=arguments.out)
    # a program may import what lies beside its folder
    root = find_project(target.root)
    inside = os.path.relpath(os.path.realpath(target.root), os.path.realpath(root))
    changed = {os.path.normpath(os.path.join(inside, name)): text for name, text in made.changed.items()}
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "converted"
        link_project(root, changed, converted)
        # after an ejection the port is the old project
        plain, ported = (converted, root) if made.style == PLAIN else (root, converted)
        program = ConvertedProgram(
            original=plain,
            converted=ported,
            script=os.path.normpath(os.path.join(inside, made.script)),
            arguments=target.arguments,
            port_arguments=made.option.make_arguments("sim"),
            has_host_path=bool(made.option.make_arguments("sim")),
            working=Path(inside),
        )
        below = "" if inside == os.curdir else f"(/{re.escape(inside)})?"
        temporary = re.compile(rf"[^\s'`]*{re.escape(os.path.basename(folder))}/converted{below}")
        place = "CONVERTED" if arguments.out is None else os.path.abspath(arguments.out)
        steps, seed, tell_name = arguments.steps, arguments.seed, lambda text: tell(temporary.sub(place, text))
        prove = prove_ports if made.style == POPTORCH else prove_conversion
        proof = prove(program, num_steps=steps, seed=seed, tell=tell_name)
        found = list_leftovers(made, proof.findings, str(converted / inside))
    columns = [
        replace(one, reason=temporary.sub(place, one.reason), command=temporary.sub(place, one.command))
        for one in proof.columns
    ]
    return replace(proof, columns=tuple(columns)), found
