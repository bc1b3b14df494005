"""The plain loop that a port is compared with: one large batch a step, or its micro-batches one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from porting.comparison.sketches import distance_of_sketches
from porting.support.host_state import keep_streams, seed_streams
from porting.torch_insides.modules import BATCH_NORMS
from porting.verify.plain_runs import copy_training, join_outputs, watch_outputs
from porting.verify.plain_training import Grouping, MicroBatch, PlainRun, PlainTraining
from porting.verify.records import Sketches, sketch_all

__all__ = ["Comparison", "choose_comparison", "make_grouping"]

# relative: what a sum of micro-batches may differ by from one large batch, and what other statistics are far above
_SAME = 1e-3


class Comparison(NamedTuple):
    """The plain side of a proof: the training, how its steps are made, whether it draws numbers, and why in words."""

    training: PlainTraining
    grouping: Grouping
    draws: bool
    text: str


class _Tried(NamedTuple):
    """One step: the mean of its losses, its gradients and outputs, and whether random numbers were drawn."""

    loss: float
    gradients: Sketches
    outputs: Sketches
    draws: bool


def make_grouping(options: Any) -> Grouping:
    """Return how a port with these options makes its steps."""
    return Grouping(options.device_iterations, options.accumulation * options.replicas, options.replicas)


def choose_comparison(training: PlainTraining, batch: MicroBatch, options: Any, *, seed: int) -> Comparison:
    """Find out whether a step over one large batch is what the micro-batches of a step stand for.

    It is tried with a step of each: equal gradients and outputs mean that no module and no loss looks at more than one
    sample. A loss that is a sum is told by that, too.
    """
    grouping = make_grouping(options)
    count = grouping.micro_batches_per_step
    parts = _try_step(training, batch, grouping, seed=seed)
    if count == 1:
        return Comparison(training, grouping, parts.draws, "the same batch a step")
    words = f"{count} micro-batches a step, one after the other in plain PyTorch"
    if parts.draws:
        return Comparison(training, grouping, True, f"{words}: random numbers are drawn for each")
    if options.precision != "float32":
        return Comparison(training, grouping, False, f"{words}, each rounded to half precision as the device does it")
    if options.output_mode != "all":
        return Comparison(training, grouping, False, f"{words}: the port returns the losses of some alone")
    whole = _try_step(training, batch, replace(grouping, is_large=True), seed=seed)
    loss = parts.loss
    if training.accumulated == "mean" and abs(whole.loss - count * loss) < abs(whole.loss - loss):
        training, loss = replace(training, accumulated="sum"), count * loss
        parts = _try_step(training, batch, grouping, seed=seed)
    is_same = abs(whole.loss - loss) <= _SAME * abs(loss) and _are_same(whole.gradients, parts.gradients)
    if is_same and _are_same(whole.outputs, parts.outputs):
        large = replace(grouping, is_large=True)
        return Comparison(training, large, False, f"one large batch a step, which {count} micro-batches stand for")
    why = "the model returns something else than a row for each sample" if is_same else _say_why(training.model)
    return Comparison(training, grouping, False, f"{words}: {why}")


def _try_step(training: PlainTraining, batch: MicroBatch, grouping: Grouping, *, seed: int) -> _Tried:
    """Make one step with a copy; nothing else changes."""
    with keep_streams():
        own = copy_training(training)
        seed_streams(seed)
        start, found = torch.get_rng_state(), {}
        run = PlainRun(own, grouping.num_buffers, start)
        with watch_outputs(own.model) as outputs:
            made = run.step(grouping.cut(batch)[0], look=lambda gradients: found.update(sketch_all(gradients)))
    losses = [float(loss.double().mean()) for loss in made.losses]
    draws = not torch.equal(start, run.random_state)
    return _Tried(sum(losses) / len(losses), found, sketch_all(join_outputs(outputs)), draws)


def _are_same(one: Sketches, other: Sketches) -> bool:
    if {name: one[name].shape for name in one} != {name: other[name].shape for name in other}:
        return False
    size = sum(sketch.norm**2 for sketch in one.values()) ** 0.5
    apart = sum(distance_of_sketches(one[name], other[name]) ** 2 for name in one) ** 0.5
    return apart <= _SAME * size


def _say_why(model: nn.Module) -> str:
    norms = [name for name, module in model.named_modules() if isinstance(module, BATCH_NORMS)]
    if norms:
        return f"`{norms[0]}` ({len(norms)} like it) takes its statistics from each micro-batch"
    return "the loss of a large batch is not that of its parts, as with a mean over what is not ignored"
