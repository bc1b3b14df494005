"""Run plain PyTorch for a proof: as it is, rounded otherwise in several ways, and in double precision.

Each run works on a copy of the user's model, optimizer and schedule. Nothing of the user's changes, and the random
streams and the number of threads are as before afterwards.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.comparison.random_rounding import RandomRounding
from porting.comparison.tensors import change_weights
from porting.model_copies import copy_together
from porting.structure import flatten_tensors, map_tensors
from porting.support.host_state import keep_streams, seed_streams, use_threads
from porting.verify.calls import Calls, MicroBatch
from porting.verify.half_rounding import HalfRule, half_rounding
from porting.verify.loop_parts import LoopWork
from porting.verify.optimizer_settings import read_settings
from porting.verify.plain_training import Grouping, PlainRun, PlainTraining
from porting.verify.records import Record, list_kept_steps, name_optimizer_state

__all__ = [
    "PLAIN",
    "Perturbation",
    "copy_training",
    "join_named",
    "join_outputs",
    "name_outputs",
    "name_state",
    "record_calls",
    "run_plain",
    "watch_outputs",
    "widen_training",
]


@dataclass(frozen=True)
class Perturbation:
    """One way of computing the same training.

    `permutes` and `changes_bits` are seeds, for another order of the rows in each micro-batch and for weights that
    differ in their last bits. With `rounding`, a seed, the results of all operators are changed at random. `size` is
    that of both changes, relative to a number. With a `rule` the run is rounded to half precision as a device does it,
    and `rounding` is for that.
    """

    name: str
    is_double: bool = False
    permutes: Optional[int] = None
    changes_bits: Optional[int] = None
    num_threads: Optional[int] = None
    rounding: Optional[int] = None
    size: Optional[float] = None
    rule: Optional[HalfRule] = None

    def change(self, model: nn.Module) -> None:
        """Change the weights that a run begins with, where it begins with others."""
        if self.changes_bits is not None:
            change_weights(model.parameters(), self.changes_bits, relative=self.size)

    def round_step(self, step: int) -> ContextManager[Any]:
        """Return a context in which the results of a step's operators are changed at random, where they are."""
        if self.rounding is None or self.rule is not None:
            return nullcontext()
        return RandomRounding(1000 * self.rounding + step, relative=self.size)


PLAIN = Perturbation("plain PyTorch")


def copy_training(training: PlainTraining, *, is_double: bool = False) -> PlainTraining:
    """Copy model, loss, optimizer and schedule, which go on belonging together; in double precision if asked for."""
    parts = training.optimizer, training.scheduler, training.loss, training.compute_loss
    model, optimizer, scheduler, loss, compute_loss = copy_together(training.model, *parts)
    if is_double:
        for part in (model, loss):
            if isinstance(part, nn.Module):
                part.double()
        for slots in optimizer.state.values():
            slots.update((name, _make_double(value)) for name, value in slots.items())
    return replace(
        training, model=model, optimizer=optimizer, scheduler=scheduler, loss=loss, compute_loss=compute_loss
    )


def run_plain(
    training: PlainTraining,
    calls: Calls,
    grouping: Grouping,
    *,
    seed: int,
    perturbation: Perturbation = PLAIN,
    stream: Optional[torch.Tensor] = None,
) -> Record:
    """Train a copy of `training` with the batches of `calls`, and return what it leaves.

    `stream` is the state that random numbers are drawn from, by default that of `seed`.

    An error, or the user who stops it, ends the run and is told by the record; before the first step is made, it
    comes through.
    """
    record = Record()
    with keep_streams(), use_threads(perturbation.num_threads):
        own = copy_training(training, is_double=perturbation.is_double)
        perturbation.change(own.model)
        seed_streams(seed)
        rule = perturbation.rule or HalfRule("float32")
        with record.noting_its_end(), half_rounding(own, rule, seed=perturbation.rounding) as rounded:
            record.keep_state(0, own.model, name_state(own))
            start = torch.get_rng_state() if stream is None else stream
            run = PlainRun(rounded, grouping.num_buffers, start)
            record_calls(run, calls, grouping, record, perturbation=perturbation)
    return record


def record_calls(
    run: PlainRun,
    calls: Calls,
    grouping: Grouping,
    record: Record,
    *,
    perturbation: Perturbation = PLAIN,
    is_each_kept: bool = False,
) -> None:
    """Make the steps of all calls and keep what they leave, of some or of each."""
    step, per_call = 0, grouping.steps_per_call
    kept, with_gradients = list_kept_steps(len(calls) * per_call, steps_per_call=per_call, is_each_kept=is_each_kept)
    own = run.training
    schedulers = [] if own.scheduler is None else [own.scheduler]
    work = LoopWork(own.model, own.optimizer, schedulers, own.schedule_every, own.each_epoch, own.also)
    shuffle = torch.Generator().manual_seed(perturbation.permutes or 0)
    for number, batch in enumerate(calls):
        for parts in grouping.cut(batch):
            step += 1
            micro_batches = [_vary_batch(part, perturbation, shuffle) for part in parts]

            def look(gradients: Dict[str, torch.Tensor], step: int = step) -> None:
                if step in with_gradients:
                    record.keep("gradient", step, gradients)

            rates = [float(group["lr"]) for group in own.optimizer.param_groups]
            watched: ContextManager[List[Any]] = watch_outputs(own.model) if step == 1 else nullcontext([])
            with perturbation.round_step(step), watched as outputs:
                made = run.step(micro_batches, look=look)
            record.losses[step] = [float(loss.double().mean()) for loss in made.losses]
            record.rates[step] = rates
            if step in with_gradients:
                named = own.model.named_parameters()
                record.settings[step] = read_settings(own.optimizer, named, own.max_grad_norm)
            if step == 1 and perturbation.permutes is None:
                record.keep("output", 1, join_outputs(outputs))
            work.update_state()
            if step in kept:
                record.keep_state(step, own.model, name_state(own), work.state)
            work.end_step(sum(record.losses[step]) / len(made.losses))
        if step in kept:
            record.keep("input", step, calls.collect_changed(number, batch))
        work.end_call(ends_epoch=calls.ends_epoch(number))


def widen_training(training: PlainTraining) -> PlainTraining:
    """Return a training whose weights are in float32, a copy where the user's are in float16.

    A device computes with such a model's state in float32; plain PyTorch would divide by an epsilon that is zero.
    """
    if not any(weight.dtype is torch.float16 for weight in training.model.parameters()):
        return training
    own = copy_training(training)
    own.model.float()
    return own


def join_outputs(outputs: Sequence[Any]) -> Dict[str, torch.Tensor]:
    """Put the tensors that a model returned for several micro-batches together, row after row, by their places.

    >>> list(join_outputs([{"logits": torch.ones(2, 3)}, {"logits": torch.ones(1, 3)}]).values())[0].shape
    torch.Size([3, 3])
    """
    return join_named([dict(name_outputs(output)) for output in outputs])


def join_named(each: Sequence[Mapping[str, torch.Tensor]]) -> Dict[str, torch.Tensor]:
    """Put named tensors of several micro-batches together, row after row."""
    joined: Dict[str, torch.Tensor] = {}
    for name in {name: None for named in each for name in named}:
        parts = [named[name] for named in each if name in named]
        parts = [part.reshape(1) if not part.dim() else part for part in parts]
        # rows of several sizes are no tensor of the port's
        is_even = len({part.shape[1:] for part in parts}) == 1
        joined[name] = torch.cat(parts if is_even else [part.reshape(-1) for part in parts])
    return joined


def name_outputs(returned: object) -> Iterator[Tuple[str, torch.Tensor]]:
    """Name the tensors that a model returned by their places: "output 0", or by the keys of mappings.

    >>> [name for name, _tensor in name_outputs({"logits": torch.ones(1), "states": (torch.ones(1),)})]
    ['output logits', 'output states.0']
    """
    if isinstance(returned, Mapping):
        for key, value in returned.items():
            parts = flatten_tensors(value)
            is_one = isinstance(value, torch.Tensor)
            yield from ((f"output {key}" if is_one else f"output {key}.{n}", part) for n, part in enumerate(parts))
        return
    yield from ((f"output {number}", tensor) for number, tensor in enumerate(flatten_tensors(returned)))


@contextmanager
def watch_outputs(model: nn.Module) -> Iterator[List[Any]]:
    """Collect copies of what the model returns, call after call."""
    found: List[Any] = []
    hook = model.register_forward_hook(
        lambda _module, _args, output: found.append(map_tensors(lambda tensor: tensor.detach().clone(), output))
    )
    try:
        yield found
    finally:
        hook.remove()


def name_state(training: PlainTraining) -> Dict[str, torch.Tensor]:
    """Return the optimizer's state by the names of its slots and parameters."""
    optimizer = training.optimizer
    return name_optimizer_state(optimizer.state_dict(), optimizer, training.model)


# -- variations --------------------------------------------------------------------------------------------------------


def _vary_batch(batch: MicroBatch, perturbation: Perturbation, generator: torch.Generator) -> MicroBatch:
    args, kwargs = batch
    if perturbation.is_double:
        args, kwargs = map_tensors(_make_double, args), map_tensors(_make_double, kwargs)
    if perturbation.permutes is None:
        return args, kwargs
    rows = next((tensor.shape[0] for tensor in flatten_tensors([args, kwargs]) if tensor.dim()), 0)
    order = torch.randperm(rows, generator=generator)

    def permute(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[order] if tensor.dim() and tensor.shape[0] == rows else tensor

    return map_tensors(permute, args), map_tensors(permute, kwargs)


def _make_double(value: object) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
