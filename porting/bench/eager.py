"""This is the eager side: plain PyTorch as an expert would write it.

It loads nothing but torch, so that its memory and start-up are those of a plain program.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
from typing import Any, Callable, ContextManager, List, Optional, Tuple

import torch

from porting.bench.workloads import Batch, Loss, MicroBatch, Workload
from porting.structure import map_tensors

__all__ = ["EagerSide", "load_late_imports", "make_best_optimizer", "take_parts"]

_DEFAULT_LEARNING_RATE = 0.01


class EagerSide:
    """Trains a copy of the workload's model: fused optimizer where torch has one, gradients set to None; or runs it.

    The micro-batches of a step run one after the other, and their gradients accumulate as on the device. `described`
    says in a few words what was chosen.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        memory_format: str = "contiguous",
        precision: str = "float32",
        fused: bool = True,
        compiled: bool = False,
        copies: bool = True,
    ) -> None:
        """Copy the model with its loss and optimizer, or take the workload's own; nothing runs yet.

        Half precisions are those of autocast; float64 is the reference for rounding. With `compiled`, `torch.compile`
        compiles the model when it is first called.
        """
        self._workload = workload
        self._channels_last = memory_format == "channels-last"
        self._precision = precision
        model, optimizer, loss = take_parts(workload, copies=copies)
        self.model = model.train(workload.trains)
        if self._channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if precision == "float64":
            self.model = self.model.double()
            loss = loss.double() if isinstance(loss, torch.nn.Module) else loss
        self.optimizer, kind = make_best_optimizer(optimizer, fused=fused and precision != "float64")
        kind = kind if workload.trains else "inference"
        if compiled:
            self.model.compile()
        self._compute_loss = _choose_loss(workload, self.model, loss)
        self._parts = self._cut_steps(workload.batch)
        self.described = ", ".join(
            [
                precision if precision in ("float32", "float64") else f"autocast to {precision}",
                memory_format,
                kind,
                *(["torch.compile"] if compiled else []),
            ]
        )

    def call(self, batch: Optional[Batch] = None) -> List[torch.Tensor]:
        """Train on one combined batch (without one, on the workload's own) and return the loss of each micro-batch.

        Of a workload that does not train, these are the outputs.
        """
        steps = self._parts if batch is None else self._cut_steps(batch)
        if not self._workload.trains:
            with torch.no_grad(), self._make_autocast():
                return [self.model(*micro.args, **micro.kwargs) for step in steps for micro in step]
        losses: List[torch.Tensor] = []
        for micro_batches in steps:
            self.optimizer.zero_grad(set_to_none=True)
            options = self._workload.options
            scale = 1.0 if options is None or options.reduction == "sum" else 1.0 / len(micro_batches)
            for micro in micro_batches:
                with self._make_autocast():
                    loss = self._compute_loss(micro)
                (loss if scale == 1.0 else loss * scale).backward()
                losses.append(loss.detach())
            self.optimizer.step()
        return losses

    def _make_autocast(self) -> ContextManager[Any]:
        if self._precision in ("bfloat16", "float16"):
            return torch.autocast("cpu", dtype=getattr(torch, self._precision))
        return contextlib.nullcontext()

    def _cut_steps(self, batch: Batch) -> List[List[MicroBatch]]:
        steps = self._workload.steps(batch)
        if not self._channels_last and self._precision != "float64":
            return steps

        def lay_out(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            if self._precision == "float64":
                return tensor.double()
            return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor

        return [[MicroBatch(*map_tensors(lay_out, micro)) for micro in step] for step in steps]


def make_best_optimizer(optimizer: torch.optim.Optimizer, *, fused: bool = True) -> Tuple[torch.optim.Optimizer, str]:
    """Make the same optimizer with torch's fused kernels, if it has such, and say which one it is.

    >>> parameter = torch.nn.Parameter(torch.zeros(2))
    >>> make_best_optimizer(torch.optim.RMSprop([parameter]))[1]
    'RMSprop'
    """
    name = type(optimizer).__name__
    if not fused or "fused" not in inspect.signature(type(optimizer)).parameters:
        return optimizer, name
    groups = [{**group, "fused": True, "foreach": None} for group in optimizer.param_groups]
    settings = {**optimizer.defaults, "fused": True, "foreach": None}
    accepted = inspect.signature(type(optimizer)).parameters
    made = type(optimizer)(groups, **{key: value for key, value in settings.items() if key in accepted})
    if optimizer.state:
        state = optimizer.state_dict()
        for group in state["param_groups"]:
            group.update(fused=True, foreach=None)
        made.load_state_dict(state)
    return made, f"{name} fused"


def load_late_imports() -> None:
    """Make torch import what it would import in the first optimizer step of a process, which takes seconds."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], lr=0.0).step()


def take_parts(workload: Workload, *, copies: bool = True) -> Tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    """Take model, optimizer and loss of a workload, or copy them together, so that what they share stays shared."""
    take: Any = copy.deepcopy if copies else tuple
    if isinstance(workload.optimizer, torch.optim.Optimizer):
        model, optimizer, loss = take((workload.model, workload.optimizer, workload.loss))
        return model, optimizer, loss
    model, loss = take((workload.model, workload.loss))
    parameters = list(model.parameters())
    if isinstance(loss, torch.nn.Module):
        parameters += list(loss.parameters())
    if workload.optimizer is None:
        return model, torch.optim.SGD(parameters, lr=_DEFAULT_LEARNING_RATE), loss
    return model, workload.optimizer(parameters), loss


def _choose_loss(
    workload: Workload, model: torch.nn.Module, loss: Optional[Loss]
) -> Callable[[MicroBatch], torch.Tensor]:
    if callable(loss) and not workload.loss_settings and not isinstance(workload.batch, dict):
        return lambda micro: loss(model(*micro.args[:-1]), micro.args[-1])
    # models that return their loss, several losses, and named arguments: label and loss are found as the port does;
    # loaded on use, because the usual model and loss need torch alone
    adapter = importlib.import_module("porting.adapters.loss")
    wrapped = adapter.LossInForward(model, loss, backend=adapter.NO_BACKEND, **workload.loss_settings)
    return lambda micro: wrapped.loss_of(wrapped(*micro.args, **micro.kwargs))
