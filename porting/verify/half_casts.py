"""The casts of a model that computes in half precision and trains weights in single: the reference's own.

A certificate proves what the adapters cast, so that nothing of theirs takes part. The rule is written in the docs of
`PortOptions(precision=...)`.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, Mapping

import torch
from torch import nn

from porting.structure import map_tensors
from porting.torch_insides.modules import CONVOLUTIONS

__all__ = ["cast", "weights_cast_to"]

# modules that multiply what comes in by their weights: both have to be of one type
_MULTIPLYING = (nn.Bilinear, nn.Linear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, CONVOLUTIONS)
# the rows that are looked up are cast, and the table is not
_TABLES = (nn.Embedding, nn.EmbeddingBag)


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Cast the floating-point tensors inside a value.

    >>> cast((torch.ones(1), torch.tensor(1)), torch.float16)
    (tensor([1.], dtype=torch.float16), tensor(1))
    """
    return map_tensors(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, value)


@contextmanager
def weights_cast_to(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Let `model` compute with casts of its weights while the context lasts; gradients reach the weights themselves."""
    copies: Dict[int, torch.Tensor] = {}
    with ExitStack() as undone:
        for module in model.modules():
            whole = {name: value for name, value in module._parameters.items() if value is not None}
            whole = {name: value for name, value in whole.items() if value.is_floating_point()}
            for value in whole.values():
                copies.setdefault(id(value), value.to(dtype))
            half = {name: copies[id(value)] for name, value in whole.items()}
            _put_into(module, half)
            undone.callback(_put_into, module, whole)
            if isinstance(module, _TABLES):
                before = module.register_forward_pre_hook(lambda module, _args, whole=whole: _put_into(module, whole))
                undone.callback(before.remove)
                undone.callback(module.register_forward_hook(_LookUp(half, dtype)).remove)
            elif isinstance(module, _MULTIPLYING):
                hook = module.register_forward_pre_hook(
                    lambda _module, args, kwargs: (cast(args, dtype), cast(kwargs, dtype)), with_kwargs=True
                )
                undone.callback(hook.remove)
        yield


class _LookUp:
    """Casts what a table gave, and lets others see the table cast again."""

    def __init__(self, half: Dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        self._half, self._dtype = half, dtype

    def __call__(self, module: nn.Module, _args: Any, output: Any) -> Any:
        _put_into(module, self._half)
        return cast(output, self._dtype)


def _put_into(module: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    module._parameters.update(values)  # type: ignore[arg-type]
    if values and isinstance(module, nn.RNNBase):
        module._flat_weights = [module._parameters[name] for name in module._flat_weights_names]
