"""Prove that a ported program trains as a plain one: what both have left, run as they are, is compared.

`porting verify --against` and the proofs of conversions use it.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, Iterator, Sequence, Tuple

import torch

from porting.verify.certificate import Certificate, Location, Measured
from porting.verify.compare import KINDS
from porting.verify.judgement import STOPPED, Judgement, find_first
from porting.verify.observation import Observation
from porting.verify.plain_runs import PLAIN, Perturbation
from porting.verify.plain_side import HOPELESS, look_closer, round_again
from porting.verify.program_comparison import ProgramComparison
from porting.verify.program_runs import ProgramPair, ProgramRuns
from porting.verify.records import find_phase
from porting.verify.runs import find_smallest_fault
from porting.verify.surroundings import describe_surroundings, hash_values

__all__ = ["ROUNDED", "certify_programs", "count_made", "verify_programs"]

ROUNDED = Perturbation("another order of sums", changes_bits=1, num_threads=max(1, torch.get_num_threads() // 2))
"""The run of a plain program that shows how far rounding leads."""

_OF_PARAMETERS = ("gradient", "update", "parameter", "buffer")


def verify_programs(
    pair: ProgramPair,
    *,
    num_steps: int,
    seed: int,
    device: str = "auto",
    tell: Callable[[str], None] = lambda _stage: None,
) -> Certificate:
    """Run both programs for some optimizer steps from the same seed, and certify whether they train the same.

    Raises ExecutableError E021 for one that fails before its first step, PortingError V002 for one that makes none.
    """
    started = time.perf_counter()
    runs = ProgramRuns(pair, seed, device, tell)
    ported = runs.run_port(num_steps)
    plains = runs.run_plain(count_made(ported, num_steps), PLAIN, PLAIN, ROUNDED)
    certificate, _judgement = certify_programs(runs, ported, plains, num_steps=num_steps)
    return replace(certificate, seconds=time.perf_counter() - started)


def count_made(ported: Observation, num_steps: int) -> int:
    """Count the steps of whole calls of a port that makes `num_steps`."""
    per_call = max(training.steps_per_call for training in ported.trainings)
    return -(-num_steps // per_call) * per_call


def certify_programs(
    runs: ProgramRuns, ported: Observation, plains: Sequence[Observation], *, num_steps: int
) -> Tuple[Certificate, Judgement]:
    """Certify whether a port has trained as plain PyTorch, which was run twice and then in another rounding.

    Where something is outside of its band, plain PyTorch is run again.
    """
    pair, num_made = runs.pair, count_made(ported, num_steps)
    plain, again, rounded = plains
    comparison = ProgramComparison(plain, ported)
    missing = comparison.runs.missing = [*comparison.iter_missing(), *_iter_short(pair, plain, ported, num_steps)]
    comparison.runs.notes += comparison.iter_notes()
    unequal = comparison.add_runs(again)
    comparison.add_runs(rounded)
    if unequal:
        missing.append(f"the training is another one each time that plain PyTorch runs it: {unequal}")

    def round_otherwise(number: int, _judgement: Judgement) -> bool:
        comparison.add_runs(*runs.run_plain(num_made, round_again(1 + number, comparison.runs.unit)))
        return True

    is_stopped = False
    try:
        judgement = look_closer(comparison.judge, round_otherwise, HOPELESS)
    except KeyboardInterrupt:
        judgement, is_stopped = comparison.judge(), True
    if any(comparison.iter_missing()):
        judgement.leave_out_drawn("random numbers are drawn for other micro-batches")
    reasons = _collect_reasons(ported).items()
    judgement.reasons.update((kind, reason) for kind, reason in reasons if kind not in judgement.measured)
    first = find_first(judgement)
    certificate = comparison.runs.certify(
        judgement,
        ended_by=STOPPED if is_stopped else _describe_end(pair.plain, plain) or _describe_end(pair.ported, ported),
        is_stopped=is_stopped,
        num_steps_asked=num_made,
        sensitivity=find_smallest_fault(judgement, comparison.runs.band),
        comparison=f"the program `{pair.plain}`",
        location=None if first is None else _find_location(first, comparison, ported),
        program=pair.ported,
        settings={
            "steps": num_steps,
            "seed": runs.seed,
            "against": pair.plain,
            "arguments": list(pair.arguments),
            "plain_arguments": list(pair.plain_arguments),
        },
        surroundings=describe_surroundings(seeds={"all": runs.seed}),
        hashes={"source": hash_values([[Path(script).read_bytes() for script in (pair.ported, pair.plain)]])},
    )
    return certificate, judgement


def _iter_short(pair: ProgramPair, plain: Observation, ported: Observation, num_steps: int) -> Iterator[str]:
    for script, observed in ((pair.plain, plain), (pair.ported, ported)):
        if observed.num_steps < num_steps and not observed.error:
            yield f"`{script}` makes {observed.num_steps} of {num_steps} steps"


def _collect_reasons(ported: Observation) -> Dict[str, str]:
    """Say why kinds are not compared that a program does not show."""
    reasons = dict.fromkeys(("loop state", "reloading", "resuming", "fresh process"), "programs are run as they are")
    reasons["output"] = "the model of a program need not return what another one returns"
    reasons["input"] = "of whole programs it is not looked at"
    reasons["evaluation"] = "it is where both evaluate after the same step"
    if ported.trainings[0].is_on_device:
        reasons.update(dict.fromkeys(("loss", "loss curve"), "the port returns those of some micro-batches alone"))
        reasons["optimizer state"] = "it stays on the device; each update that is made of it is compared"
        if not ported.trainings[0].record.list_steps("gradient"):
            reasons["gradient"] = "the port keeps them on the device: `PortOptions(keep_gradients=True)`"
    return reasons


def _describe_end(script: str, observed: Observation) -> str:
    return f"`{script}` ended after step {observed.num_steps}: {observed.error}" if observed.error else ""


def _find_location(first: Measured, comparison: ProgramComparison, ported: Observation) -> Location:
    """Say where a difference begins: in the loss's line of the ported program, or in that of the optimizer's step."""
    # outputs are losses, of further optimizers
    phase = "loss" if first.kind == "output" else find_phase(first.kind)
    places = ported.trainings[comparison.find_training(first.name)].places
    place = places["update" if phase in ("update", "schedule") else "loss"]
    if place is not None:
        place = replace(place, file=os.path.relpath(place.file))
    module = first.name.rpartition(".")[0] if first.kind in _OF_PARAMETERS else ""
    return Location(
        phase,
        first.step,
        module,
        place=place,
        cause=f"`{first.name}`: {first.note}" if first.note else KINDS.get(first.kind, ""),
    )
