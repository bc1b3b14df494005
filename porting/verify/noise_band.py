"""Measure the noise band of each quantity: how far rounding alone carries it, in runs that are right and differ.

Judgements ask for it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from porting.comparison.noise import MARGIN, NOTHING, UNDECIDED, Noise, list_furthest
from porting.comparison.shifts import Shifts
from porting.comparison.sketches import distance_of_sketches
from porting.verify.records import Record

__all__ = ["NoiseBand", "describe_repetition"]

# training magnifies what was small
_FIRST_STEPS, _MARGIN_LATER = 3, 2.0
# of the runs of half precision, whose errors are few and large
_MARGIN_OF_HALF = 1.5
# One number is near zero in a run by chance; many are not.
_MARGIN_OF_FEW = 3.0
# Units in the last place that count as nothing, of a tensor, or of the weights whose difference an update is.
_UNITS = 8.0
_SINGLE = 2.0**-23
# How many times as far as is usual of runs half of the tensors may be, and of how many tensors that says something.
_RATIO, _FEWEST = 5.0, 4
# what is computed of single numbers, though the numbers come from half ones
_KEPT_WIDE = ("update", "parameter")
# relative, of losses that were computed twice in the same way; threads may add in another order
_SAME_AGAIN = 1e-4
# Of the loss's own change, and of the loss: beyond it rounding leads anywhere.
_CHAOS, _LEAST_CHAOS = 0.5, 1e-2


class _Noises(NamedTuple):
    """By tensor how far the furthest run is from plain; the usual share of that, and the size of the largest tensor."""

    furthest: Dict[str, float]
    usual: float
    largest: float


@dataclass
class NoiseBand:
    """Bands around a plain run; `runs` are others of the same training, `unit` is that of the coarsest type used.

    `stores_half` tells whether weights are kept in that type.
    """

    plain: Record
    runs: Sequence[Record]
    unit: float
    stores_half: bool = False
    _noises: Dict[Tuple[str, int], _Noises] = field(default_factory=dict)
    _losses: List[float] = field(default_factory=list)

    def find_band(self, kind: str, step: int, name: str) -> float:
        """Return how far the port may be: measured noise times a margin, and at least some units in the last place."""
        if kind in ("loss", "loss curve"):
            return self.find_loss_band(step)
        sketch, noises = self.plain.find(kind, step)[name], self._measure_noises(kind, step)
        noise = max(noises.furthest.get(name, 0.0), noises.usual * sketch.norm)
        margin = self._find_margin(step) * (1 + _MARGIN_OF_FEW / math.sqrt(sketch.numel))
        floor = self._find_floor(kind) * self._find_scale(kind, step, name)
        nothing = NOTHING * noises.largest * math.sqrt(sketch.numel)
        return Noise(noise, margin, max(floor, nothing, self._find_turned(kind, step, name))).band

    def collect_factors(self, ported: Record, kind: str) -> Dict[Tuple[int, str], float]:
        """Return by step and tensor what many numbers say together: how many times what rounding does to all of them.

        Half precision alone needs it, whose bands for one tensor are wide: rounding has no preferred side, and makes no
        more errors in the port than in the runs. A tensor stands for all of its kind where it is the furthest of them.
        """
        found: Dict[Tuple[int, str], float] = {}
        shifts: Dict[str, Shifts] = {}
        for step in self.plain.list_steps("parameter" if kind == "update" else kind) if self._is_half else ():
            rows = [record.find(kind, step) for record in (self.plain, *self.runs, ported)]
            if not step or not rows[-1]:
                continue
            ratios = {}
            for name, sketch in rows[0].items():
                if name in rows[-1] and rows[-1][name].shape == sketch.shape and sketch.kind == "floating point":
                    lacking = torch.full_like(sketch.values, math.nan)
                    values = torch.stack([row[name].values if name in row else lacking for row in rows])
                    least = self._find_floor(kind) * self._find_scale(kind, step, name) / 2
                    measured = shifts.setdefault(name, Shifts(self.unit)).measure(values, least)
                    found[step, name], ratios[name] = measured
            if len(ratios) >= _FEWEST:
                furthest = max(ratios, key=lambda name: ratios[name])
                found[step, furthest] = max(found[step, furthest], statistics.median(ratios.values()) / _RATIO)
        return found

    def _find_turned(self, kind: str, step: int, name: str) -> float:
        """Return how far a weight may be whose gradient has no sign of its own; 0 where it has one.

        Adam and its kin move a weight by the sign of its gradient: as far to one side as to the other.
        """
        if not self._is_half or kind not in ("update", "parameter") or not step:
            return 0.0
        undecided = 0.0
        for earlier in self.plain.list_steps("gradient"):
            gradient = self.plain.find("gradient", earlier).get(name)
            if earlier <= step and gradient is not None and gradient.norm:
                undecided = max(undecided, self.find_band("gradient", earlier, name) / gradient.norm)
        if undecided < UNDECIDED:
            return 0.0
        moved = self.plain.find("update", step)[name].norm
        if kind == "parameter":
            start, now = (self.plain.sketches["parameter", number][name] for number in (0, step))
            moved = now.minus(start).norm
        return 2 * moved * min(1.0, math.sqrt(undecided))

    @property
    def _is_half(self) -> bool:
        return self.unit > _UNITS * _SINGLE

    def _find_floor(self, kind: str) -> float:
        if kind in _KEPT_WIDE and not self.stores_half:
            return _UNITS * _SINGLE
        # the runs of half precision are rounded as the port is
        return self.unit if self._is_half else _UNITS * self.unit

    def _find_margin(self, step: int) -> float:
        later = 1.0 if step <= _FIRST_STEPS else _MARGIN_LATER
        return MARGIN * later * (_MARGIN_OF_HALF if self._is_half else 1.0)

    def _find_scale(self, kind: str, step: int, name: str) -> float:
        # an update is the difference of two weights, which are rounded
        place = "parameter" if kind == "update" else kind
        return self.plain.sketches[place, step][name].norm

    def _measure_noises(self, kind: str, step: int) -> _Noises:
        if (kind, step) not in self._noises:
            plain = self.plain.find(kind, step)
            found: Dict[str, float] = {}
            for run in self.runs:
                for name, sketch in run.find(kind, step).items():
                    if name in plain and plain[name].shape == sketch.shape:
                        found[name] = max(found.get(name, 0.0), distance_of_sketches(plain[name], sketch))
            shares = [noise / plain[name].norm for name, noise in found.items() if plain[name].norm]
            if self._is_half:
                # half precision makes nothing but noise of some tensors, which says nothing of the others
                shares = [share for share in shares if share < UNDECIDED]
            largest = max((one.norm / math.sqrt(one.numel) for one in plain.values()), default=0.0)
            self._noises[kind, step] = _Noises(found, statistics.median(shares) if shares else 0.0, largest)
        return self._noises[kind, step]

    def measure_loss(self, step: int) -> float:
        """Return how far rounding has carried the mean loss of a step, or of one before it."""
        if not self._losses:
            plain = [self.plain.mean_loss(number) for number in self._steps]
            runs = ([run.mean_loss(number) for number in self._steps] for run in self.runs)
            self._losses[:] = list_furthest(map(_measure_apart, itertools.repeat(plain), runs)) or [0.0] * len(plain)
        return self._losses[step - 1]

    @property
    def _steps(self) -> Sequence[int]:
        return range(1, self.plain.num_steps + 1)

    def find_loss_band(self, step: int) -> float:
        """Return how far the mean loss of a step may be."""
        loss = self.plain.mean_loss(step) or 0.0
        return Noise(self.measure_loss(step), self._find_margin(step), 2 * self._find_floor("loss") * abs(loss)).band

    def find_chaos(self) -> Optional[int]:
        """Return the first step in which rounding moves the loss as far as training does; None if there is none."""
        losses: List[float] = []
        for step in self._steps:
            loss = self.plain.mean_loss(step)
            if loss is None or not math.isfinite(loss):
                return None
            losses.append(loss)
            change = max(losses) - min(losses)
            least = max(_LEAST_CHAOS, 4 * self.unit) * abs(loss)
            if step > 1 and self.measure_loss(step) > max(_CHAOS * change, least):
                return step
        return None


def _measure_apart(losses: Sequence[Optional[float]], others: Sequence[Optional[float]]) -> List[float]:
    pairs = zip(losses, others)
    return [0.0 if one is None or other is None else abs(one - other) for one, other in pairs]


def describe_repetition(plain: Record, again: Record, steps: Iterable[int]) -> str:
    """Say how a training that was run again is another one; nothing if its losses are those of before."""
    for step in steps:
        one, other = plain.mean_loss(step), again.mean_loss(step)
        if one is not None and other is not None and abs(one - other) > _SAME_AGAIN * abs(one):
            return f"the loss of step {step} is {one:g} and {other:g}, from the same seed"
    return ""
