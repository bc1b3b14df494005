"""Make the inputs of a proof: the plain training, the port of a copy, and the batches of its calls.

It also tells which samples these are.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader

from porting.adapters.loader_position import read_streams, set_streams
from porting.adapters.sample_audit import audit_samples
from porting.api import PortedModel, to_ipu
from porting.diagnostics import PortingError, say_kind
from porting.options import PortOptions
from porting.structure import flatten_tensors, make_call_arguments
from porting.support.host_state import seed_streams
from porting.verify.calls import (
    Calls,
    MicroBatch,
    UnequalBatchesError,
    are_same_tensors,
    copy_tensors,
    count_rows,
    have_same_tensors,
    join_rows,
)
from porting.verify.certificate import Measured
from porting.verify.plain_runs import copy_training
from porting.verify.plain_training import PlainTraining
from porting.verify.ported_run import PortedTraining

__all__ = ["Inputs", "PortMaker", "collect_inputs", "compare_samples", "make_training", "refuse"]

# Batches that are kept in memory for all runs; with more, the first are repeated.
_MOST_BYTES = 256 << 20
_DEFAULT_RATE = 0.01


def make_training(
    model: object, loss: object = None, optimizer: Any = None, scheduler: Any = None, **settings: Any
) -> PlainTraining:
    """Put together what plain PyTorch trains; nothing that was given is changed, now or later."""
    if isinstance(model, PlainTraining):
        return model
    if not isinstance(model, nn.Module):
        refuse(f"`model` is {say_kind(model)}", "give the model, a `torch.nn.Module`, or a `PlainTraining`")
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=_DEFAULT_RATE)
    elif not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(model)
    if scheduler is not None and not hasattr(scheduler, "step"):
        # a schedule changes the optimizer that it is made for
        memo = {id(parameter): parameter for parameter in model.parameters()}
        optimizer = copy.deepcopy(optimizer, memo)
        scheduler = scheduler(optimizer)
    own = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in own for group in optimizer.param_groups for parameter in group["params"]):
        refuse("the optimizer has parameters that are not the model's", "make it from `model.parameters()`")
    return PlainTraining(model, loss, optimizer, scheduler, **settings)


@dataclass(frozen=True)
class PortMaker:
    """Makes the port of a copy of the model; or gives the one that the user has made."""

    training: PlainTraining
    given: Any
    options: Optional[PortOptions]
    device: str
    save: Optional[Callable[[Any, Path], None]] = None
    load: Optional[Callable[[Any, Path], None]] = None

    @property
    def is_given(self) -> bool:
        """Whether the port is an object of the user's, of which there is only one."""
        return isinstance(self.given, (PortedModel, PortedTraining))

    def make(self) -> PortedTraining:
        """Return a port in its first state; PortingError V002 for something else."""
        if self.is_given:
            made = self.given
        elif self.given is None:
            made = self._port_copy()
        elif callable(self.given) and not isinstance(self.given, nn.Module):
            made = self.given(_copy_parts(self.training).model)
        else:
            made = self.given
        if isinstance(made, PortedModel):
            made = PortedTraining(made)
        if not isinstance(made, PortedTraining) or not isinstance(made.model, PortedModel):
            kind = say_kind(made.model if isinstance(made, PortedTraining) else made)
            refuse(f"`ported` gives {kind}", "return what `to_ipu` returns, or a `PortedTraining` around it")
        if made.model.model is self.training.model:
            refuse("the port is one of the model itself", "port a `copy.deepcopy(model)`")
        if not made.model.training:
            refuse("the port is in eval mode", "call `ported.train()`")
        own = self.training
        return replace(
            made,
            each_epoch=made.each_epoch or own.each_epoch,
            also=made.also or own.also,
            save=made.save or self.save,
            load=made.load or self.load,
        )

    def _port_copy(self) -> PortedTraining:
        own = _copy_parts(self.training)
        options = self.options or PortOptions()
        # the fastest engine is looked for while a training goes on, which is no part of the proof
        returned = {"output_mode": "all", "output_every": 1} if options.micro_batches_per_call > 1 else {}
        options = options.replace(keep_gradients=True, engine=options.engine or "ready", seed=None, **returned)
        with warnings.catch_warnings():
            # the weights that are converted to half precision are those of a copy
            warnings.filterwarnings("ignore", message=r"note\[P003\]")
            ported = to_ipu(
                own.model,
                own.loss,
                optimizer=own.optimizer,
                max_grad_norm=own.max_grad_norm,
                options=options,
                device=self.device,
                label=own.label,
                label_transform=own.label_transform,
                reduction=own.reduction,
                loss_output=own.loss_output,
            )
        schedule = None if own.scheduler is None else ported.scheduler(own.scheduler)
        return PortedTraining(ported, schedule, schedule_every=own.schedule_every)


def _copy_parts(training: PlainTraining) -> PlainTraining:
    try:
        return copy_training(training)
    except RuntimeError as error:
        refuse(
            f"the model cannot be copied: {error}",
            "keep results of computations out of its attributes, or `.detach()` them",
        )


@dataclass(frozen=True)
class Inputs:
    """The batches of both sides' calls, what a reader must know of them, and why the reference could not load its own.

    `theirs` are the port's, which are `calls` themselves unless its loader has given others.
    """

    calls: Calls
    theirs: Calls
    note: str = ""


def collect_inputs(source: object, ported: PortedTraining, num_calls: int, *, seed: int) -> Inputs:
    """Collect the batches of `num_calls` calls for both sides, each from its own loader.

    `source` is one combined batch, which is repeated, a list of them, or a loader, which is gone through again and
    again. A loader of PyTorch's is gone through as in plain PyTorch, and its batches are joined; the port makes a
    loader of its own of it.
    """
    if source is None:
        refuse("there are no batches", "give one as a call takes it, `(inputs, labels)`, a list of them, or a loader")
    if _is_one_batch(source):
        calls = theirs = Calls([make_call_arguments(source)] * num_calls)
    elif type(source) is DataLoader:
        calls, theirs = _load_twice(source, ported, num_calls, seed)
        if source.num_workers and ported.batches is None and not _are_same(calls, theirs):
            # processes draw random numbers for the samples of one batch each, and batches are not of one size
            calls, theirs = _load_twice(_load_here(source), ported, num_calls, seed)
    else:
        calls = theirs = _collect_from(source, lambda: source, num_calls, seed)
    if ported.batches is not None:
        own = ported.batches
        theirs = _collect_from(own, lambda: _make_loader(own, ported), num_calls, seed)
    if not calls or not theirs:
        refuse("the loader gives no batch", "let it have enough samples for a call of the port")
    note = "" if len(calls) == num_calls else f"the first {len(calls)} batches are repeated"
    repeated = calls.repeat(num_calls)
    return Inputs(repeated, repeated if theirs is calls else theirs.repeat(num_calls), note)


def _load_twice(source: DataLoader, ported: PortedTraining, num_calls: int, seed: int) -> Tuple[Calls, Calls]:
    options = ported.model.options
    size = options.micro_batch if options.micro_batch > 1 else source.batch_size
    ours = _collect_from(source, lambda: _JoinedLoader(source, size, options.micro_batches_per_call), num_calls, seed)
    if ported.batches is not None:
        return ours, ours
    theirs = _collect_from(source, lambda: _make_loader(source, ported), num_calls, seed)
    # so that they are kept in memory once
    return ours, (ours if _are_same(ours, theirs) else theirs)


def _make_loader(source: object, ported: PortedTraining) -> Any:
    return ported.model.dataloader(source) if type(source) is DataLoader else source


def _load_here(loader: DataLoader) -> Any:
    """Return a loader like this one that loads in this process."""
    own = copy.copy(loader)
    own.num_workers, own.timeout = 0, 0
    return own


class _JoinedLoader:
    """Epochs of a loader whose batches are joined to those of calls; each begins as the loader's own does."""

    def __init__(self, loader: DataLoader, batch_size: Optional[int], num_joined: int) -> None:
        self._loader, self._batch_size, self._num_joined = loader, batch_size, num_joined

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        first = next(batches, None)
        if first is None:
            return
        size = self._batch_size or count_rows(first)
        try:
            yield from join_rows(itertools.chain([first], batches), size * self._num_joined)
        except UnequalBatchesError as error:
            refuse(f"the loader's batches cannot be joined to one of a call: {error}", "pad all of them to one size")


def _collect_from(source: object, make_loader: Callable[[], Any], num_calls: int, seed: int) -> Calls:
    """Collect the batches of a loader; the random streams, and those in `source`, are as before afterwards."""
    before = read_streams(source)
    try:
        seed_streams(seed)
        return _take_calls(make_loader(), num_calls)
    finally:
        set_streams(before, source)


def _take_calls(loader: Iterable[Any], num_calls: int) -> Calls:
    calls: List[MicroBatch] = []
    ends: Set[int] = set()
    size = 0
    # a loader may fill the same tensors again
    is_fixed = isinstance(loader, (list, tuple))
    for batch, is_first in _go_round(loader):
        call = make_call_arguments(batch)
        size += sum(tensor.numel() * tensor.element_size() for tensor in flatten_tensors(call))
        if calls and size > _MOST_BYTES:
            break
        ends.update([len(calls) - 1] if is_first and calls else [])
        calls.append(call if is_fixed else copy_tensors(call))
        if len(calls) == num_calls:
            break
    return Calls(calls, ends)


def _are_same(ours: Calls, theirs: Calls) -> bool:
    return len(ours) == len(theirs) and all(map(have_same_tensors, ours, theirs))


def _go_round(loader: Iterable[Any]) -> Iterator[Tuple[Any, bool]]:
    """Go through a loader again and again, but only once through what cannot be gone through again.

    With each batch it is told whether it is the first of an epoch.
    """
    while True:
        is_first = True
        for batch in loader:
            yield batch, is_first
            is_first = False
        # to make an iterator may draw a random number
        if is_first or hasattr(loader, "__next__"):
            return


def _is_one_batch(source: object) -> bool:
    if isinstance(source, (torch.Tensor, tuple, dict)):
        return True
    return isinstance(source, list) and all(isinstance(item, torch.Tensor) for item in source)


def refuse(fault: str, remedy: str) -> NoReturn:
    """Raise PortingError V002."""
    raise PortingError.at_caller("V002", message=fault, help=remedy)


# -- samples -----------------------------------------------------------------------------------------------------------


def compare_samples(source: object, ported: PortedTraining, calls: Calls, theirs: Calls) -> Iterator[Measured]:
    """Compare the batches of both sides, and count what an epoch of a loader drops and repeats on each."""
    if theirs is not calls:
        step = ported.model.options.device_iterations
        for number, (one, other) in enumerate(zip(calls, theirs)):
            yield _compare_call(one, other, number * step + 1)
    if type(source) is DataLoader and type(ported.batches) in (DataLoader, type(None)):
        yield from _compare_epochs(source, source if ported.batches is None else ported.batches, ported.model.options)


def _compare_call(one: MicroBatch, other: MicroBatch, step: int) -> Measured:
    pairs = flatten_tensors(one), flatten_tensors(other)
    shapes = [[list(tensor.shape) for tensor in tensors] for tensors in pairs]
    if shapes[0] != shapes[1]:
        return Measured("samples", "batch", step, math.inf, 0.0, 0.0, f"{shapes[1]} in the port, not {shapes[0]}")
    wrong = [number for number, tensors in enumerate(zip(*pairs)) if not are_same_tensors(*tensors)]
    note = f"tensor {wrong[0]} of the batch has other values" if wrong else ""
    return Measured("samples", "batch", step, math.inf if wrong else 0.0, 0.0, 0.0, note)


def _compare_epochs(plain: DataLoader, ported: DataLoader, options: PortOptions) -> Iterator[Measured]:
    size = plain.batch_size or 1
    size_of_port = options.micro_batch if options.micro_batch > 1 else ported.batch_size or 1
    ours = audit_samples(plain, samples_per_call=size if plain.drop_last else 1)
    theirs = audit_samples(ported, samples_per_call=options.micro_batches_per_call * size_of_port)
    if ours is None or theirs is None:
        return
    for name, one, other, examples in (
        ("dropped", ours.num_dropped, theirs.num_dropped, theirs.dropped),
        ("repeated", ours.num_repeated, theirs.num_repeated, theirs.repeated),
    ):
        more = max(0, other - one)
        note = f"an epoch of the port has {other} samples {name}, one of plain PyTorch {one}{_join_examples(examples)}"
        yield Measured("samples", name, 1, float(more), float(ours.num_samples), 0.0, note if more else "")


def _join_examples(examples: Sequence[int]) -> str:
    return f": {', '.join(map(str, examples))}, ..." if examples else ""
