"""The runs of both sides, what they show together, and the certificate of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from porting.verify.certificate import Certificate, Curves, PrecisionVerdict
from porting.verify.judgement import Judgement, decide_verdict, gradient_errors, judge_runs
from porting.verify.noise_band import NoiseBand, mean_loss
from porting.verify.records import Record

__all__ = ["Runs"]


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
        known = [[mean_loss(run, step) for run in (self.plain, *self.others)] for step in steps]
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
    losses = [mean_loss(record, step) for step in range(1, record.num_steps + 1)]
    return tuple(math.nan if loss is None else loss for loss in losses)


def _list_rates(record: Record) -> Tuple[float, ...]:
    return tuple(rates[0] for step, rates in sorted(record.rates.items()) if rates and step <= record.num_steps)
