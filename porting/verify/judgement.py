"""Judge the record of a port by that of plain PyTorch, quantity by quantity, each with its noise band.

Proofs, comparisons with a given tolerance and rechecks use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from porting.comparison.sketches import Sketch, distance_of_sketches
from porting.diagnostics import say_number
from porting.verify.certificate import (
    KindVerdict,
    Measured,
    PrecisionVerdict,
    Verdict,
    describe_measured,
    find_earliest,
)
from porting.verify.certificate_file import match_losses
from porting.verify.noise_band import NoiseBand
from porting.verify.optimizer_settings import compare_settings
from porting.verify.records import KINDS, Record

__all__ = [
    "STOPPED",
    "Band",
    "FixedBand",
    "Judgement",
    "compare_tensors",
    "decide_verdict",
    "describe_form",
    "find_first",
    "judge_runs",
    "list_outside",
]

STOPPED = "it was interrupted"
"""How a proof has ended that the user stops."""

# float32 holds a rate no better
_RATE_UNIT = 1e-6
_TENSOR_KINDS = (
    *("input", "output", "gradient", "update", "optimizer state"),
    *("buffer", "parameter", "loop state", "evaluation"),
)
# How far outside something is that no closer look would bring back, where the user has stopped the proof before one.
_CERTAIN = 30.0
# why there is nothing to compare where no reason was given
_NOTHING = {
    "samples": "both sides were given the same batches",
    "input": "neither side changes a batch in place",
    "loop state": "no `also=` was given: a moving average or other state that the loop keeps is not known",
    "fresh process": "`porting verify PROGRAM:FUNCTION` resumes in a process of its own",
}
_AT_START = ("parameter", "buffer")
_RETURNED = ("output", "evaluation")


class FixedBand(NamedTuple):
    """A band that no runs have measured: `find_band` tells it, in which `chaos` is the first step of nothing."""

    find_band: Callable[[str, int, str], float]
    chaos: Optional[int] = None
    runs: Sequence[Record] = ()

    def collect_factors(self, _ported: Record, _kind: str) -> Mapping[Tuple[int, str], float]:
        """Return nothing: of many numbers together nothing is known."""
        return {}

    def find_chaos(self) -> Optional[int]:
        """Return the step that is known."""
        return self.chaos


Band = Union[NoiseBand, FixedBand]
"""How far each quantity of a port may be from the plain run's, by kind, step and name."""


@dataclass
class Judgement:
    """All that was measured, by kind, and why a kind could not be; `chaos` and `lost` are steps that end the proof.

    From `chaos` on rounding leads anywhere; from `lost` on neither side's loss is finite.
    """

    measured: Dict[str, List[Measured]] = field(default_factory=dict)
    reasons: Dict[str, str] = field(default_factory=dict)
    chaos: Optional[int] = None
    lost: Optional[int] = None

    def add(self, found: Iterable[Measured]) -> None:
        """Add what was measured."""
        for one in found:
            self.measured.setdefault(one.kind, []).append(one)

    def include(self, other: Judgement) -> None:
        """Add all that another judgement has measured, and its reasons."""
        for found in other.measured.values():
            self.add(found)
        self.reasons.update(other.reasons)

    def count_compared(self, plain: Record, ported: Record) -> int:
        """Count the steps that both records have, before that which ends the proof."""
        ends = [step - 1 for step in (self.chaos, self.lost) if step is not None]
        return min([plain.num_steps, ported.num_steps, *ends])

    def leave_out_drawn(self, reason: str) -> None:
        """Leave out what depends on random numbers, and the end that they led to."""
        self.chaos = self.lost = None
        for kind in (*_TENSOR_KINDS, "loss", "loss curve"):
            kept = [one for one in self.measured.pop(kind, []) if one.step == 0]
            self.reasons[kind] = reason
            self.add(kept)

    def list_verdicts(self) -> List[KindVerdict]:
        """Sum up each kind, in the order in which a fault spreads."""
        return [self._sum_up(kind) for kind in KINDS]

    def _sum_up(self, kind: str) -> KindVerdict:
        found, note = self.measured.get(kind, []), self.reasons.get(kind, "")
        if not found:
            return KindVerdict(
                kind, Verdict.NOT_COMPARED, note=note or _NOTHING.get(kind, "there is none of this kind")
            )
        outside = [one for one in found if not one.is_inside]
        first = min(outside, key=lambda one: one.step) if outside else None
        verdict = Verdict.FAIL if outside else Verdict.PASS
        worst = max(found, key=lambda one: one.factor)
        return KindVerdict(kind, verdict, len(found), worst, first, note)


def judge_runs(plain: Record, ported: Record, band: Band, *, loss_factor: float = 1.0) -> Judgement:
    """Compare all that two records have; `loss_factor` makes the port's mean loss of one plain PyTorch's."""
    judgement = Judgement(chaos=band.find_chaos(), lost=_find_lost(plain, ported))
    ends = [step for step in (judgement.chaos, judgement.lost) if step is not None]
    # at the end one run may have gone further than the other
    end = min([*ends, plain.num_steps + 1, ported.num_steps + 1])
    judgement.add(_compare_losses(plain, ported, band, end, loss_factor))
    judgement.add(_compare_rates(plain, ported, end))
    for step in sorted(set(plain.settings) & set(ported.settings)):
        if step < end and ported.settings[step]:
            judgement.add(compare_settings(plain.settings[step], ported.settings[step], step))
    for kind in _TENSOR_KINDS:
        factors = band.collect_factors(ported, kind)
        for step in plain.list_steps("parameter" if kind == "update" else kind):
            if step < end and (step or kind in _AT_START):
                judgement.add(compare_tensors(plain, ported, band, kind, step, factors=factors))
    return judgement


def list_outside(judgement: Judgement) -> List[Measured]:
    """List what lies outside of its band."""
    return [one for found in judgement.measured.values() for one in found if not one.is_inside]


def find_first(judgement: Judgement) -> Optional[Measured]:
    """Return what lies outside where it begins: in the earliest step, and there the kind that comes first."""
    return find_earliest(judgement.list_verdicts())


def decide_verdict(
    judgement: Judgement,
    num_steps: int,
    *,
    ended_by: str = "",
    is_stopped: bool = False,
    missing: Sequence[str] = (),
    precision: Optional[PrecisionVerdict] = None,
) -> Tuple[Verdict, str]:
    """Say what `num_steps` compared steps show, and why; `missing` is what was asked for and could not be had.

    With `is_stopped`, what is outside was not looked at more closely.
    """
    first = find_first(judgement)
    if first is not None and is_stopped and first.factor < _CERTAIN:
        words = f"not looked at more closely: {describe_measured(first)}"
        return Verdict.INCOMPLETE, f"{ended_by}; {say_number(num_steps, 'step')} were compared; {words}"
    if first is not None:
        return Verdict.FAIL, f"the port trains something else: {describe_measured(first)}"
    if precision is not None and not precision.explains:
        # plain PyTorch loses the same when it is rounded as the port is: nothing lies outside of the band
        return Verdict.FAIL, f"half precision loses what is trained with: {precision.text}"
    if ended_by:
        return Verdict.INCOMPLETE, f"{ended_by}; {say_number(num_steps, 'step')} were compared until then"
    if missing:
        return Verdict.INCOMPLETE, "; ".join(missing)
    if judgement.chaos is not None:
        said = "rounding alone moves the loss as far as training does, so that nothing is shown"
        return Verdict.CHAOTIC, f"from step {judgement.chaos} on {said}; the {num_steps} before it are equal"
    if judgement.lost is not None:
        said = f"the loss is not finite from step {judgement.lost} on, on both sides"
        return Verdict.INCOMPLETE, f"{said}; {say_number(num_steps, 'step')} were compared before"
    return Verdict.PASS, f"everything that was looked at lies inside its noise band, {num_steps} steps long"


def _find_lost(plain: Record, ported: Record) -> Optional[int]:
    """Return the first step in which the loss of both is not finite."""
    pairs = ((step, (plain.mean_loss(step), ported.mean_loss(step))) for step in range(1, plain.num_steps + 1))
    lost = (step for step, pair in pairs if all(loss is not None and not math.isfinite(loss) for loss in pair))
    return next(lost, None)


def _compare_losses(plain: Record, ported: Record, band: Band, end: int, loss_factor: float) -> Iterator[Measured]:
    for step in range(1, end):
        pair = match_losses(plain.losses.get(step, []), ported.losses.get(step, []), loss_factor)
        if pair is None:
            continue
        one, other = pair
        apart, note = abs(one - other), ""
        if not math.isfinite(apart):
            note = f"{other:g} in the port, {one:g} in plain PyTorch"
            apart = 0.0 if math.isinf(one) and one == other else math.inf
        kind = "loss" if step == 1 else "loss curve"
        yield Measured(kind, "loss", step, apart, abs(one), band.find_band(kind, step, "loss"), note)


def _compare_rates(plain: Record, ported: Record, end: int) -> Iterator[Measured]:
    for step in range(1, end):
        ours, theirs = plain.rates.get(step, []), ported.rates.get(step, [])
        if len(ours) != len(theirs) and theirs:
            # the same settings may lie in more groups; updates tell whether a parameter has another's rate
            ours, theirs = sorted(set(ours)), sorted(set(theirs))
        if len(ours) != len(theirs) and theirs:
            note = f"{len(theirs)} learning rates in the port, {len(ours)} in plain PyTorch"
            yield Measured("learning rate", "groups", step, math.inf, 0.0, 0.0, note)
            continue
        for number, (one, other) in enumerate(zip(ours, theirs)):
            band = _RATE_UNIT * abs(one)
            yield Measured("learning rate", f"group {number}", step, abs(one - other), abs(one), band)


def compare_tensors(
    plain: Record,
    ported: Record,
    band: Band,
    kind: str,
    step: int,
    *,
    factors: Mapping[Tuple[int, str], float] = MappingProxyType({}),
) -> Iterator[Measured]:
    """Compare the tensors of a kind in a step; by `factors` is off what is off in the same way in many numbers."""
    ours, theirs = plain.find(kind, step), ported.find(kind, step)
    if not theirs and not _has_kind(ported, kind, step):
        return
    # a device may hold a count as a floating-point number
    describe = describe_form if kind in _RETURNED else _describe_shapes
    for name in {**ours, **theirs}:
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            yield _measure_one_side(kind, name, step, one, other)
        elif describe(one, other):
            yield Measured(kind, name, step, math.inf, one.norm, 0.0, describe(one, other))
        elif one.num_not_finite != other.num_not_finite:
            yield _measure_lost(kind, name, step, one, other, band)
        else:
            # whole numbers are not rounded, but what an evaluation counts or chooses may turn with rounding
            is_exact = one.kind not in ("floating point", "complex") and kind != "evaluation"
            allowed = 0.0 if is_exact else band.find_band(kind, step, name)
            distance = distance_of_sketches(one, other)
            factor = factors.get((step, name), 0.0)
            # so far may be what is off in the same way
            allowed = min(allowed, distance / factor) if distance and factor else allowed
            yield Measured(kind, name, step, distance, one.norm, allowed)


def describe_form(plain: Sketch, ported: Sketch) -> str:
    """Say how the shapes or kinds of two outputs differ; nothing if they do not."""
    kinds = f"{ported.kind} in the port, {plain.kind} in plain PyTorch"
    return _describe_shapes(plain, ported) or ("" if plain.kind == ported.kind else kinds)


def _describe_shapes(plain: Sketch, ported: Sketch) -> str:
    if plain.shape == ported.shape:
        return ""
    return f"shape {list(ported.shape)} in the port, {list(plain.shape)} in plain PyTorch"


def _has_kind(record: Record, kind: str, step: int) -> bool:
    """Tell whether a record has kept a kind in a step, even if there was nothing."""
    return ("parameter" if kind == "update" else kind, step) in record.sketches and bool(
        kind != "optimizer state" or step in record.list_steps(kind) and record.sketches[kind, step]
    )


def _measure_one_side(kind: str, name: str, step: int, plain: Optional[Sketch], ported: Optional[Sketch]) -> Measured:
    present = plain if ported is None else ported
    assert present is not None
    side = "plain PyTorch" if ported is None else "the port"
    if kind == "input":
        return Measured(kind, name, step, math.inf, present.norm, 0.0, f"only {side} changes it in place")
    if not present.norm and not present.num_not_finite and kind not in (*_AT_START, "evaluation"):
        return Measured(kind, name, step, 0.0, 0.0, 0.0)
    note = f"only {side} {'returns' if kind in _RETURNED else 'has'} it"
    return Measured(kind, name, step, math.inf, present.norm, 0.0, note)


def _measure_lost(kind: str, name: str, step: int, one: Sketch, other: Sketch, band: Band) -> Measured:
    """Measure a tensor with more elements that are not finite on one side; rounding alone may decide of some."""
    others = [run.find(kind, step).get(name) for run in band.runs]
    counts = [run.num_not_finite for run in others if run is not None] + [one.num_not_finite]
    if min(counts) <= other.num_not_finite <= max(counts):
        return Measured(kind, name, step, 0.0, one.norm, 0.0)
    note = f"{other.num_not_finite} elements are not finite in the port, {one.num_not_finite} in plain PyTorch"
    return Measured(kind, name, step, math.inf, one.norm, 0.0, note)


def gradient_errors(judgement: Judgement) -> Mapping[str, tuple]:
    """Return, by parameter, the distance of the first gradient that was compared, its scale and its band."""
    found = judgement.measured.get("gradient", [])
    first = min((one.step for one in found), default=0)
    return {one.name: (one.distance, one.scale, one.band) for one in found if one.step == first}
