"""The curves of a certificate, for plots: losses and learning rates of both sides, and how far rounding leads."""

from __future__ import annotations

import math
from typing import Optional, Sequence, Tuple

from porting.verify.certificate import Curves
from porting.verify.noise_band import mean_loss
from porting.verify.records import Record

__all__ = ["make_curves"]


def make_curves(plain: Record, ported: Record, reference: Optional[Record], runs: Sequence[Record]) -> Curves:
    """Return the curves of two runs; `runs` are those that differ from the plain one by rounding alone."""
    steps = range(1, plain.num_steps + 1)
    known = [[mean_loss(run, step) for run in (plain, *runs)] for step in steps]
    bounds = [[loss for loss in losses if loss is not None] for losses in known]
    return Curves(
        plain=_list_losses(plain),
        ported=_list_losses(ported),
        reference=() if reference is None else _list_losses(reference),
        lowest=tuple(min(losses, default=math.nan) for losses in bounds),
        highest=tuple(max(losses, default=math.nan) for losses in bounds),
        plain_rates=_list_rates(plain),
        ported_rates=_list_rates(ported),
    )


def _list_losses(record: Record) -> Tuple[float, ...]:
    losses = [mean_loss(record, step) for step in range(1, record.num_steps + 1)]
    return tuple(math.nan if loss is None else loss for loss in losses)


def _list_rates(record: Record) -> Tuple[float, ...]:
    return tuple(
        record.rates.get(step, [math.nan])[0] for step in range(1, record.num_steps + 1) if record.rates.get(step)
    )
