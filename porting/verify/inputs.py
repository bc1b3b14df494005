"""The inputs of a proof: the plain training, the port of a copy, and the batches of its calls."""

from __future__ import annotations

import copy
import itertools
import warnings
from dataclasses import dataclass
from typing import Any, Iterator, List, NoReturn, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader

from porting.adapters.loader_position import read_streams, set_streams
from porting.api import PortedModel, to_ipu
from porting.diagnostics import PortingError
from porting.options import PortOptions
from porting.structure import flatten_tensors, make_call_arguments
from porting.verify.plain_runs import copy_training, seed_streams
from porting.verify.plain_training import MicroBatch, PlainTraining
from porting.verify.ported_run import PortedTraining

__all__ = ["PortMaker", "collect_calls", "make_training"]

# Batches that are kept in memory for all runs; with more, the first are repeated.
_MOST_BYTES = 256 << 20
_DEFAULT_RATE = 0.01


def make_training(
    model: Any, loss: Any, optimizer: Any, scheduler: Any, max_grad_norm: Optional[float], **settings: Any
) -> PlainTraining:
    """Put together what plain PyTorch trains; nothing that was given is changed, now or later."""
    if isinstance(model, PlainTraining):
        return model
    if not isinstance(model, nn.Module):
        refuse(f"`model` is a {type(model).__name__}", "give the model, a `torch.nn.Module`, or a `PlainTraining`")
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
    return PlainTraining(model, loss, optimizer, scheduler, max_grad_norm=max_grad_norm, **settings)


@dataclass(frozen=True)
class PortMaker:
    """Makes the port of a copy of the model; or gives the one that the user has made."""

    training: PlainTraining
    given: Any
    options: Optional[PortOptions]
    device: str

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
            kind = type(made.model if isinstance(made, PortedTraining) else made).__name__
            refuse(f"`ported` gives a {kind}", "return what `to_ipu` returns, or a `PortedTraining` around it")
        if made.model.model is self.training.model:
            refuse("the port is one of the model itself", "port a `copy.deepcopy(model)`")
        if not made.model.training:
            refuse("the port is in eval mode", "call `ported.train()`")
        return made

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
        return PortedTraining(ported, schedule)


def _copy_parts(training: PlainTraining) -> PlainTraining:
    try:
        return copy_training(training)
    except RuntimeError as error:
        refuse(
            f"the model cannot be copied: {error}",
            "keep results of computations out of its attributes, or `.detach()` them",
        )


def collect_calls(source: Any, ported: PortedTraining, num_calls: int, *, seed: int) -> Tuple[List[MicroBatch], str]:
    """Collect the batches of `num_calls` calls, and say what a reader must know of them.

    `source` is one combined batch, which is repeated, a list of them, or a loader, which is gone through again and
    again. PyTorch's own loaders give batches for plain PyTorch; the port's loader makes combined ones of them.
    """
    if source is None:
        refuse("there are no batches", "give one as a call takes it, `(inputs, labels)`, a list of them, or a loader")
    if _is_one_batch(source):
        return [make_call_arguments(source)] * num_calls, ""
    before = read_streams(source)
    try:
        seed_streams(seed)
        loader = ported.model.dataloader(source) if type(source) is DataLoader else source
        calls = _take_calls(loader, num_calls)
    finally:
        set_streams(before, source)
    if not calls:
        refuse("the loader gives no batch", "let it have enough samples for a call of the port")
    note = "" if len(calls) == num_calls else f"the first {len(calls)} batches are repeated"
    return list(itertools.islice(itertools.cycle(calls), num_calls)), note


def _take_calls(loader: Any, num_calls: int) -> List[MicroBatch]:
    calls: List[MicroBatch] = []
    size = 0
    for batch in _go_round(loader):
        call = make_call_arguments(batch)
        size += sum(tensor.numel() * tensor.element_size() for tensor in flatten_tensors(call))
        if calls and size > _MOST_BYTES:
            break
        calls.append(call)
        if len(calls) == num_calls:
            break
    return calls


def _go_round(loader: Any) -> Iterator[Any]:
    """Go through a loader again and again, but only once through what cannot be gone through again."""
    while True:
        is_empty = True
        for batch in loader:
            is_empty = False
            yield batch
        if is_empty or iter(loader) is loader:
            return


def _is_one_batch(source: Any) -> bool:
    if isinstance(source, (torch.Tensor, tuple, dict)):
        return True
    return isinstance(source, list) and all(isinstance(item, torch.Tensor) for item in source)


def refuse(fault: str, remedy: str) -> NoReturn:
    """Raise PortingError V002."""
    raise PortingError.at_caller("V002", message=fault, help=remedy)
