"""The magnitudes of a step on a real batch, in plain PyTorch and float32: what float16 would have to hold."""

from __future__ import annotations

import copy
import math
from contextlib import ExitStack
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import nn

from ..adapters import LossInForward
from ..analysis.half_precision import SMALLEST_HALF, MeasuredModule
from ..structure import flatten_tensors
from .step_capture import Arguments

__all__ = ["measure_step"]

# what is copied and run takes as much memory again, and as long as a step of plain PyTorch
_MOST_WEIGHTS = 200_000_000


class _Magnitudes:
    """What is known so far of one module."""

    def __init__(self) -> None:
        self.value = self.gradient = 0.0
        self.smallest = math.inf
        self.num_lost = self.num_gradients = 0

    def take_value(self, tensor: torch.Tensor) -> None:
        self.value = max(self.value, _find_largest(tensor))

    def take_gradient(self, gradient: torch.Tensor) -> None:
        magnitudes = gradient.detach().abs()
        self.gradient = max(self.gradient, _find_largest(magnitudes))
        magnitudes = magnitudes[magnitudes > 0]
        if magnitudes.numel():
            self.smallest = min(self.smallest, float(magnitudes.min()))
            self.num_gradients += magnitudes.numel()
            # half of the smallest number is rounded to zero
            self.num_lost += int((magnitudes <= SMALLEST_HALF / 2).sum())


def measure_step(model: nn.Module, loss: Any, arguments: Arguments) -> Optional[Sequence[MeasuredModule]]:
    """Run one step of a copy of `model` in float32, and measure what its modules put out, and the gradients of that.

    None where there is nothing to measure: weights or a batch without values, or a model too large to be copied.
    Raises what the model itself raises.
    """
    weights = [*model.parameters(), *model.buffers(), *flatten_tensors(arguments)]
    if any(tensor.is_meta for tensor in weights) or sum(tensor.numel() for tensor in weights) > _MOST_WEIGHTS:
        return None
    own = copy.deepcopy((model, loss))
    found: Dict[str, _Magnitudes] = {}
    # float32 whatever the user's weights are in: what float16 has lost cannot be measured any more
    forward = LossInForward(own[0].float(), own[1], backend=_Nothing)
    args, kwargs = _widen(arguments)
    with ExitStack() as undone, torch.enable_grad(), torch.inference_mode(False):
        for name, module in own[0].named_modules():
            magnitudes = found[name or type(module).__name__] = _Magnitudes()
            handle = module.register_forward_hook(_make_hook(magnitudes))
            undone.callback(handle.remove)
        results = flatten_tensors(forward(*args, **kwargs))
        scalars = [tensor for tensor in results if tensor.requires_grad and tensor.numel() == 1]
        if scalars:
            scalars[-1].backward()
        for name, parameter in own[0].named_parameters():
            if parameter.grad is not None:
                found[name.rpartition(".")[0] or type(model).__name__].take_gradient(parameter.grad)
    return [_summarise_magnitudes(name, magnitudes) for name, magnitudes in found.items()]


class _Nothing:
    """What `LossInForward` asks of a backend, for a run without one."""

    @staticmethod
    def identity_loss(loss: torch.Tensor, reduction: str) -> torch.Tensor:
        return getattr(loss, reduction)() if reduction in ("sum", "mean") else loss

    @staticmethod
    def isRunningOnIpu() -> bool:  # noqa: N802 - the vendor's spelling
        return False


def _make_hook(magnitudes: _Magnitudes) -> Any:
    def look(_module: nn.Module, _args: Any, output: Any) -> None:
        for tensor in flatten_tensors(output):
            if tensor.is_floating_point() and tensor.numel():
                magnitudes.take_value(tensor.detach())
                if tensor.requires_grad:
                    tensor.register_hook(magnitudes.take_gradient)

    return look


def _widen(arguments: Arguments) -> Arguments:
    def widen(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.float() if is_float else value

    widened: List[Any] = [widen(value) for value in arguments[0]]
    return tuple(widened), {name: widen(value) for name, value in arguments[1].items()}


def _find_largest(tensor: torch.Tensor) -> float:
    largest = float(tensor.detach().abs().max())
    return math.inf if math.isnan(largest) else largest


def _summarise_magnitudes(name: str, magnitudes: _Magnitudes) -> MeasuredModule:
    return MeasuredModule(
        name,
        largest_value=magnitudes.value,
        largest_gradient=magnitudes.gradient,
        smallest_gradient=0.0 if math.isinf(magnitudes.smallest) else magnitudes.smallest,
        lost_gradients=magnitudes.num_lost / max(magnitudes.num_gradients, 1),
    )
