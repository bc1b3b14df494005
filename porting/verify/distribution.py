"""Compare many draws of both sides, from one state, where their random numbers cannot be matched.

`verify` does so for a device that does not draw from torch's stream.
"""

from __future__ import annotations

import copy
import math
import statistics
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import torch

from porting.comparison.sketches import Sketch
from porting.support.host_state import keep_streams, seed_streams
from porting.verify.certificate import Measured
from porting.verify.plain_runs import copy_training
from porting.verify.plain_side import Comparison
from porting.verify.plain_training import MicroBatch, PlainRun
from porting.verify.ported_run import PortedTraining, make_call
from porting.verify.records import sketch_all

__all__ = ["compare_draws"]

_NUM_DRAWS, _NUM_DRAWS_OF_SMALL, _SMALL = 64, 256, 1 << 20
# A difference of means this many standard errors wide is no chance: two of a million, for all that is compared.
_ERRORS = 5.0
# Standard errors above that are found with a probability of nine in ten.
_POWER = 1.28


class _Draws(NamedTuple):
    """Losses and gradients of many draws, the gradients as numbers by parameter."""

    losses: List[float]
    gradients: Dict[str, List[Sketch]]


def compare_draws(
    comparison: Comparison, ported: PortedTraining, call: MicroBatch, *, seed: int
) -> Tuple[List[Measured], str]:
    """Compare what both sides draw for one batch from the weights at the start; say what would have been found.

    Means of losses and of gradients may differ by five standard errors, and so may the spread of the losses. The port
    must have the names of the plain model, and is left after one step.
    """
    model = comparison.training.model
    size = sum(parameter.numel() for parameter in model.parameters())
    count = _NUM_DRAWS_OF_SMALL if size <= _SMALL else _NUM_DRAWS
    ours = _draw_plain(comparison, call, seed, count)
    theirs = _draw_ported(ported, call, model.state_dict(), count)
    found = [_compare_means("loss", "loss", ours.losses, theirs.losses), _compare_spreads(ours.losses, theirs.losses)]
    for name, sketches in ours.gradients.items():
        if name in theirs.gradients:
            found.append(_compare_means("gradient", name, *_project_gradients(sketches, theirs.gradients[name])))
            lengths = [[sketch.norm for sketch in side] for side in (sketches, theirs.gradients[name])]
            found.append(_compare_means("gradient", f"length of {name}", *lengths))
    found += _iter_one_sided(ours.gradients, theirs.gradients)
    spread = statistics.stdev(ours.losses)
    shift = (_ERRORS + _POWER) * spread * math.sqrt(2 / count)
    words = f"random numbers are not those of plain PyTorch: {count} draws of each side are compared"
    return found, f"{words}; a mean loss that is off by {shift:.2g} is found with a probability of 90 %"


def _draw_plain(comparison: Comparison, call: MicroBatch, seed: int, count: int) -> _Draws:
    draws = _Draws([], {})
    with keep_streams():
        own = copy_training(comparison.training)
        start = copy.deepcopy(own.model.state_dict())
        parts = comparison.grouping.cut(call)[0]
        for number in range(count):
            own.model.load_state_dict(start)
            seed_streams(seed + number)
            run = PlainRun(own, comparison.grouping.replicas, torch.get_rng_state())
            made = run.step(parts, look=lambda gradients: _keep_gradients(draws, gradients))
            draws.losses.append(sum(float(loss.double().mean()) for loss in made.losses) / len(made.losses))
    return draws


def _draw_ported(ported: PortedTraining, call: MicroBatch, start: Mapping[str, torch.Tensor], count: int) -> _Draws:
    model, draws = ported.model, _Draws([], {})
    args, kwargs = call
    for _number in range(count):
        model.load_state_dict(start)
        losses = model.loss_of(make_call(ported, args, kwargs)).detach().double().flatten()
        per_step = len(losses) // model.options.device_iterations
        draws.losses.append(float(losses[: per_step or 1].mean()))
        if model.options.keep_gradients:
            _keep_gradients(draws, model.gradients(0))
    return draws


def _keep_gradients(draws: _Draws, gradients: Mapping[str, torch.Tensor]) -> None:
    for name, sketch in sketch_all(gradients).items():
        draws.gradients.setdefault(name, []).append(sketch)


def _project_gradients(ours: Sequence[Sketch], theirs: Sequence[Sketch]) -> Tuple[List[float], List[float]]:
    """Return the lengths of all gradients along the mean of plain PyTorch's."""
    direction = torch.stack([sketch.values for sketch in ours]).mean(0)
    length = float(direction.norm()) or 1.0
    first, second = ([float(one.values @ direction) / length for one in sketches] for sketches in (ours, theirs))
    return first, second


def _compare_means(kind: str, name: str, ours: Sequence[float], theirs: Sequence[float]) -> Measured:
    means = statistics.fmean(ours), statistics.fmean(theirs)
    error = math.sqrt(statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs))
    band = _ERRORS * error + 1e-5 * abs(means[0])
    note = f"means of {len(ours)} draws"
    return Measured(kind, name, 1, abs(means[0] - means[1]), abs(means[0]), band, note)


def _compare_spreads(ours: Sequence[float], theirs: Sequence[float]) -> Measured:
    spreads = statistics.stdev(ours), statistics.stdev(theirs)
    apart = (
        abs(math.log(spreads[0] / spreads[1])) if min(spreads) > 0 else (0.0 if spreads[0] == spreads[1] else math.inf)
    )
    # the standard error of the logarithm of both, for losses that are spread as a normal distribution is
    band = _ERRORS * math.sqrt(1 / (len(ours) - 1))
    note = f"{spreads[1]:.2g} in the port, {spreads[0]:.2g} in plain PyTorch"
    return Measured("loss", "spread of the losses", 1, apart, 1.0, band, note)


def _iter_one_sided(ours: Mapping[str, object], theirs: Mapping[str, object]) -> Iterator[Measured]:
    if not theirs:
        return
    for name in {**ours, **theirs}:
        if (name in ours) != (name in theirs):
            note = f"only {'plain PyTorch' if name in ours else 'the port'} has it"
            yield Measured("gradient", name, 1, math.inf, 0.0, 0.0, note)
