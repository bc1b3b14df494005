"""The magnitudes of a step on a real batch, in plain PyTorch and float32: what float16 would have to hold."""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.analysis.half_precision import LARGEST_HALF, SMALLEST_HALF, MeasuredModule
from porting.model_copies import copy_together
from porting.structure import Structure, flatten_tensors

from .loss import LossInForward

__all__ = ["RangeWatch", "measure_step", "watch_ranges"]

_Arguments = Tuple[Tuple[Any, ...], Dict[str, Any]]

# what is copied and run takes as much memory again, and as long as a step of plain PyTorch
_MOST_WEIGHTS = 200_000_000


class _Magnitudes:
    """What is known so far of one module; gradients are counted as `loss_scaling` makes them."""

    def __init__(self, loss_scaling: float) -> None:
        self._scaling = loss_scaling
        self.value = self.gradient = 0.0
        self.smallest = self.smallest_value = math.inf
        self.num_lost = self.num_gradients = self.num_high_gradients = 0
        self.num_lost_values = self.num_values = self.num_high_values = 0

    def take_value(self, tensor: torch.Tensor) -> None:
        self.value = max(self.value, _find_largest(tensor))
        counts = _count_ends(tensor.detach().abs(), 1.0)
        self.smallest_value = min(self.smallest_value, counts[0])
        self.num_values += counts[1]
        self.num_lost_values += counts[2]
        self.num_high_values += counts[3]

    def take_gradient(self, gradient: torch.Tensor) -> None:
        magnitudes = gradient.detach().abs()
        self.gradient = max(self.gradient, _find_largest(magnitudes))
        counts = _count_ends(magnitudes, self._scaling)
        self.smallest = min(self.smallest, counts[0])
        self.num_gradients += counts[1]
        self.num_lost += counts[2]
        self.num_high_gradients += counts[3]


def _count_ends(magnitudes: torch.Tensor, scale: float) -> Tuple[float, int, int, int]:
    """Return the smallest of the magnitudes that are not zero, and how many there are, vanish, and overflow."""
    magnitudes = magnitudes[magnitudes != 0]
    if not magnitudes.numel():
        return math.inf, 0, 0, 0
    # half of the smallest number is rounded to zero
    num_lost = int((magnitudes <= SMALLEST_HALF / 2 / scale).sum())
    # what is infinite in float32 has not overflowed in half
    num_high = int(((magnitudes > LARGEST_HALF / scale) & magnitudes.isfinite()).sum())
    return float(magnitudes.nan_to_num(math.inf).min()), magnitudes.numel(), num_lost, num_high


class RangeWatch:
    """The magnitudes of a model's values and gradients, module by module, of all that ran while it was watched."""

    def __init__(self, model: nn.Module, loss_scaling: float) -> None:
        """Know nothing yet."""
        names = {name: name or type(model).__name__ for name, _module in model.named_modules()}
        self.found = {shown: _Magnitudes(loss_scaling) for shown in names.values()}
        self._root = type(model).__name__

    def take_gradients(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Look at gradients of parameters, by name, as they are without a loss scaling."""
        for name, gradient in gradients.items():
            self.found[name.rpartition(".")[0] or self._root].take_gradient(gradient)

    def summarise(self) -> List[MeasuredModule]:
        """Return what was found."""
        return [_summarise_magnitudes(name, magnitudes) for name, magnitudes in self.found.items()]


@contextmanager
def watch_ranges(model: nn.Module, *, loss_scaling: float = 1.0) -> Iterator[RangeWatch]:
    """Look at what the modules of `model` put out, and at the gradients of that, while the context lasts.

    What overflows and what is lost of the gradients is counted as if they were multiplied by `loss_scaling`.
    """
    watch = RangeWatch(model, loss_scaling)
    with ExitStack() as undone:
        for name, module in model.named_modules():
            handle = module.register_forward_hook(_make_hook(watch.found[name or type(model).__name__]))
            undone.callback(handle.remove)
        yield watch


def measure_step(model: nn.Module, loss: object, arguments: _Arguments) -> Optional[Sequence[MeasuredModule]]:
    """Run one step of a copy of `model` in float32, and measure what its modules put out, and the gradients of that.

    None where there is nothing to measure: weights or a batch without values, or a model too large to be copied.
    Raises what the model itself raises.
    """
    weights = [*model.parameters(), *model.buffers(), *flatten_tensors(arguments)]
    if any(tensor.is_meta for tensor in weights) or sum(tensor.numel() for tensor in weights) > _MOST_WEIGHTS:
        return None
    own = copy_together(model, loss)
    # float32 whatever the user's weights are in: what float16 has lost cannot be measured any more
    forward = LossInForward(own[0].float(), own[1], backend=_Nothing)
    args, kwargs = _widen(arguments)
    with watch_ranges(own[0]) as watch, torch.enable_grad(), torch.inference_mode(False):
        results = flatten_tensors(forward(*args, **kwargs))
        scalars = [tensor for tensor in results if tensor.requires_grad and tensor.numel() == 1]
        if scalars:
            scalars[-1].backward()
        named = own[0].named_parameters()
        watch.take_gradients({name: parameter.grad for name, parameter in named if parameter.grad is not None})
    return watch.summarise()


class _Nothing:
    """What `LossInForward` asks of a backend, for a run without one."""

    @staticmethod
    def identity_loss(loss: torch.Tensor, reduction: str) -> torch.Tensor:
        return getattr(loss, reduction)() if reduction in ("sum", "mean") else loss

    @staticmethod
    def isRunningOnIpu() -> bool:  # noqa: N802 - the vendor's spelling
        return False


def _make_hook(magnitudes: _Magnitudes) -> Any:
    def look(_module: nn.Module, _args: object, output: Structure) -> None:
        for tensor in flatten_tensors(output):
            if tensor.is_floating_point() and tensor.numel():
                magnitudes.take_value(tensor.detach())
                if tensor.requires_grad:
                    tensor.register_hook(magnitudes.take_gradient)

    return look


def _widen(arguments: _Arguments) -> _Arguments:
    def widen(value: object) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

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
        smallest_value=0.0 if math.isinf(magnitudes.smallest_value) else magnitudes.smallest_value,
        lost_values=magnitudes.num_lost_values / max(magnitudes.num_values, 1),
        overflowing_values=magnitudes.num_high_values / max(magnitudes.num_values, 1),
        overflowing_gradients=magnitudes.num_high_gradients / max(magnitudes.num_gradients, 1),
    )
