"""Measure the magnitudes of a step on a real batch, in plain PyTorch and float32, which float16 would have to hold.

Preflights and proofs of ports in half precision use it.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.analysis.half_precision import LARGEST_HALF, SMALLEST_HALF, MeasuredModule
from porting.model_copies import copy_together
from porting.structure import Structure, flatten_tensors

from .loss import NO_BACKEND, LossInForward
from .precision import cast_floats

__all__ = ["RangeWatch", "measure_step", "watch_ranges"]

_Arguments = Tuple[Tuple[Any, ...], Dict[str, Any]]

# what is copied and run takes as much memory again, and as long as a step of plain PyTorch
_MOST_WEIGHTS = 200_000_000


@dataclass
class _Magnitudes:
    """Extremes of the values of a module, or of its gradients, and how many vanish or overflow times `scale`."""

    scale: float = 1.0
    largest: float = 0.0
    smallest: float = math.inf
    num_elements: int = 0
    num_lost: int = 0
    num_high: int = 0

    def take(self, tensor: torch.Tensor) -> None:
        magnitudes = tensor.detach().abs()
        largest = float(magnitudes.max())
        self.largest = max(self.largest, math.inf if math.isnan(largest) else largest)
        magnitudes = magnitudes[magnitudes != 0]
        if magnitudes.numel():
            self.smallest = min(self.smallest, float(magnitudes.nan_to_num(math.inf).min()))
            self.num_elements += magnitudes.numel()
            # half of the smallest number is rounded to zero
            self.num_lost += int((magnitudes <= SMALLEST_HALF / 2 / self.scale).sum())
            # what is infinite in float32 has not overflowed in half
            self.num_high += int(((magnitudes > LARGEST_HALF / self.scale) & magnitudes.isfinite()).sum())


class RangeWatch:
    """The magnitudes of a model's values and gradients, module by module, of all that ran while it was watched."""

    def __init__(self, model: nn.Module, loss_scaling: float) -> None:
        """Know nothing yet."""
        self._root = type(model).__name__
        names = [name or self._root for name, _module in model.named_modules()]
        self.found = {name: (_Magnitudes(), _Magnitudes(loss_scaling)) for name in names}

    def take_gradients(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Look at gradients of parameters, by name, as they are without a loss scaling."""
        for name, gradient in gradients.items():
            self.found[name.rpartition(".")[0] or self._root][1].take(gradient)

    def summarise(self) -> List[MeasuredModule]:
        """Return what was found."""
        return [_summarise_magnitudes(name, *magnitudes) for name, magnitudes in self.found.items()]


@contextmanager
def watch_ranges(model: nn.Module, *, loss_scaling: float = 1.0) -> Iterator[RangeWatch]:
    """Look at what the modules of `model` put out, and at the gradients of that, while the context lasts.

    What overflows and what is lost of the gradients is counted as if they were multiplied by `loss_scaling`.
    """
    watch = RangeWatch(model, loss_scaling)
    with ExitStack() as undone:
        for name, module in model.named_modules():
            handle = module.register_forward_hook(_make_hook(*watch.found[name or type(model).__name__]))
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
    forward = LossInForward(own[0].float(), own[1], backend=NO_BACKEND)
    args, kwargs = cast_floats(arguments, torch.float32)
    with watch_ranges(own[0]) as watch, torch.enable_grad(), torch.inference_mode(False):
        results = flatten_tensors(forward(*args, **kwargs))
        scalars = [tensor for tensor in results if tensor.requires_grad and tensor.numel() == 1]
        if scalars:
            scalars[-1].backward()
        named = own[0].named_parameters()
        watch.take_gradients({name: parameter.grad for name, parameter in named if parameter.grad is not None})
    return watch.summarise()


def _make_hook(values: _Magnitudes, gradients: _Magnitudes) -> Any:
    def look(_module: nn.Module, _args: object, output: Structure) -> None:
        for tensor in flatten_tensors(output):
            if tensor.is_floating_point() and tensor.numel():
                values.take(tensor)
                if tensor.requires_grad:
                    tensor.register_hook(gradients.take)

    return look


def _summarise_magnitudes(name: str, values: _Magnitudes, gradients: _Magnitudes) -> MeasuredModule:
    return MeasuredModule(
        name,
        largest_value=values.largest,
        largest_gradient=gradients.largest,
        smallest_gradient=0.0 if math.isinf(gradients.smallest) else gradients.smallest,
        lost_gradients=gradients.num_lost / max(gradients.num_elements, 1),
        smallest_value=0.0 if math.isinf(values.smallest) else values.smallest,
        lost_values=values.num_lost / max(values.num_elements, 1),
        overflowing_values=values.num_high / max(values.num_elements, 1),
        overflowing_gradients=gradients.num_high / max(gradients.num_elements, 1),
    )
