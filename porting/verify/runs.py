"""Sum up the runs of both sides: what they show together, how small a fault would have shown, and the certificate.

`verify` and `program_proof` keep their records in `Runs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from porting.comparison.sketches import Sketch
from porting.verify.certificate import Certificate, Curves, PrecisionVerdict, Sensitivity
from porting.verify.judgement import Judgement, decide_verdict, gradient_errors, judge_runs, list_outside
from porting.verify.noise_band import NoiseBand
from porting.verify.records import Record, Sketches

__all__ = ["SIZES", "Runs", "find_smallest_fault", "plant_fault"]


@dataclass
class Runs:
    """What the runs of both sides have left: `others` differ from the plain one by rounding alone.

    `reference` is one in more digits. `notes` are what a reader must know of them, `missing` why nothing is proven.
    `unit` is that of the coarsest type in use, `stores_half` tells whether weights are kept in it, and `loss_factor`
    makes the port's mean loss of one plain PyTorch's.
    """

    unit: float
    plain: Record = field(default_factory=Record)
    ported: Record = field(default_factory=Record)
    others: List[Record] = field(default_factory=list)
    reference: Optional[Record] = None
    notes: List[str] = field(default_factory=list)
    missing: List[str] = field(default_factory=list)
    stores_half: bool = False
    loss_factor: float = 1.0

    @property
    def band(self) -> NoiseBand:
        """The noise bands around the plain run, by the runs that there are."""
        return NoiseBand(self.plain, self.others, self.unit, stores_half=self.stores_half)

    def judge(self) -> Judgement:
        """Compare the port's run with what there is."""
        return judge_runs(self.plain, self.ported, self.band, loss_factor=self.loss_factor)

    def make_curves(self) -> Curves:
        """Return losses and learning rates by step, for plots, and how far rounding leads."""
        steps = range(1, self.plain.num_steps + 1)
        known = [[run.mean_loss(step) for run in (self.plain, *self.others)] for step in steps]
        bounds = [[loss for loss in losses if loss is not None] for losses in known]
        return Curves(
            plain=_list_losses(self.plain),
            ported=_list_losses(self.ported),
            reference=() if self.reference is None else _list_losses(self.reference),
            lowest=tuple(min(losses, default=math.nan) for losses in bounds),
            highest=tuple(max(losses, default=math.nan) for losses in bounds),
            plain_rates=_list_rates(self.plain),
            ported_rates=_list_rates(self.ported),
        )

    def certify(
        self,
        judgement: Judgement,
        *,
        ended_by: str = "",
        is_stopped: bool = False,
        precision: Optional[PrecisionVerdict] = None,
        **facts: Any,
    ) -> Certificate:
        """Make the certificate of what was judged; `facts` are its fields that no run shows."""
        num_steps = judgement.count_compared(self.plain, self.ported)
        verdict, reason = decide_verdict(
            judgement, num_steps, ended_by=ended_by, is_stopped=is_stopped, missing=self.missing, precision=precision
        )
        return Certificate(
            verdict,
            reason,
            tuple(judgement.list_verdicts()),
            num_steps=num_steps,
            curves=self.make_curves(),
            gradient_errors=gradient_errors(judgement),
            # each once: what was stopped has begun again
            notes=tuple(dict.fromkeys([*self.notes, *(words for words in self.missing if words not in reason)])),
            precision=precision,
            record=self._make_record(judgement),
            **facts,
        )

    def _make_record(self, judgement: Judgement) -> Dict[str, Any]:
        """Make what a certificate keeps: losses, the port's sketches, the noise band of each quantity."""
        measured = (one for found in judgement.measured.values() for one in found)
        return {
            **self.ported.to_dict(),
            "plain_losses": {str(step): own for step, own in self.plain.losses.items()},
            "loss_factor": self.loss_factor,
            "bands": [[one.kind, one.step, one.name, one.band] for one in measured if one.band],
            "chaos": judgement.chaos,
        }


def _list_losses(record: Record) -> Tuple[float, ...]:
    losses = [record.mean_loss(step) for step in range(1, record.num_steps + 1)]
    return tuple(math.nan if loss is None else loss for loss in losses)


def _list_rates(record: Record) -> Tuple[float, ...]:
    return tuple(rates[0] for step, rates in sorted(record.rates.items()) if rates and step <= record.num_steps)


# -- the smallest fault ------------------------------------------------------------------------------------------------

# How many times its band a fault has to be: where something is outside, further runs are made, which widen the bands.
_HEADROOM = 3.0

SIZES = tuple(digit * 10.0**power for power in range(-6, 0) for digit in (1, 3)) + (1.0,)
"""By which parts of themselves gradients are made too large, one after another."""


def find_smallest_fault(judgement: Judgement, band: NoiseBand) -> Optional[Sensitivity]:
    """Find the smallest fault that is outside of `band`, planted in the plain run as well as in one that is rounded.

    It is one of the gradients if the port's were compared, else one of the updates; None where neither was.
    """
    kind = next((kind for kind in ("gradient", "update") if judgement.measured.get(kind)), "")
    if not kind or not band.runs:
        return None
    known = [band.plain, next((run for run in band.runs if run.num_steps == band.plain.num_steps), band.runs[0])]
    place = _find_first(SIZES, lambda size: all(_is_caught(record, band, kind, size) for record in known))
    caught, missed = SIZES[place : place + 1], SIZES[place - 1 : place] if place else ()
    return Sensitivity(kind, next(iter(caught), None), next(iter(missed), None))


def plant_fault(record: Record, kind: str, size: float) -> Record:
    """Return a record that has nothing but this kind, by a part of itself too large; losses are not compared."""
    planted = Record({record.num_steps: []})
    steps = record.list_steps("gradient" if kind == "gradient" else "parameter")
    start = None if kind == "gradient" else record.sketches["parameter", steps[0]]
    for step in steps:
        place = "gradient" if kind == "gradient" else "parameter", step
        planted.sketches[place] = _make_larger(record.sketches[place], size, start)
    return planted


def _make_larger(sketches: Sketches, size: float, start: Optional[Sketches]) -> Sketches:
    """Make tensors larger by a part of themselves, or of their way since the start."""

    def enlarge(name: str, sketch: Sketch) -> Sketch:
        way = sketch if start is None else sketch.minus(start[name])
        return replace(sketch, values=sketch.values + size * way.values)

    return {name: enlarge(name, sketch) for name, sketch in sketches.items()}


def _is_caught(record: Record, band: NoiseBand, kind: str, size: float) -> bool:
    found = judge_runs(band.plain, plant_fault(record, kind, size), band)
    return any(_HEADROOM < one.factor < math.inf for one in list_outside(found))


def _find_first(sizes: Sequence[float], is_caught: Callable[[float], bool]) -> int:
    """Return the place of the first size that is caught, and how many there are where none is: larger ones are."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_caught(sizes[middle]) else (middle + 1, high)
    return low
