"""Build a user's model without memory for its weights, so that it has shapes and types alone.

A preflight looks at shapes alone, and a model of 10^9 parameters takes minutes and gigabytes to fill with random
numbers. Small tensors stay real, because programs read numbers from them: `torch.linspace(0, 0.1, 12).tolist()`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from ..torch_insides.modes import DisableTorchFunction

__all__ = ["LightTensors", "make_light"]

_Made = TypeVar("_Made")

_LARGE = 1 << 20
# layers make their weights by `torch.empty`, which nobody reads before it is filled
_FULL = (torch.zeros, torch.ones, torch.rand, torch.randn)
_LIMITS: Dict[Any, int] = {torch.empty: 1 << 12, **dict.fromkeys(_FULL, _LARGE)}
_LIKE = frozenset([torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like, torch.randn_like])
_MOVES = frozenset([torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda])


class LightTensors(TorchFunctionMode):
    """A context in which large tensors are made without memory, on the device "meta", and stay there when moved.

    >>> with LightTensors():
    ...     layer = torch.nn.Linear(4096, 4096)
    >>> layer.weight.is_meta, layer.weight.requires_grad
    (True, True)
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Let factories of large tensors, and moves of tensors without memory, do without memory."""
        kwargs = dict(kwargs or {})
        if func in _MOVES and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return _cast_tensor(*args, **kwargs) if func is torch.Tensor.to else args[0]
        limit = _LIMITS.get(func)
        if limit is not None and kwargs.get("out") is None and _count_elements(args, kwargs) >= limit:
            kwargs["device"] = "meta"
            kwargs.pop("pin_memory", None)
            kwargs.pop("generator", None)
        elif func in _LIKE and isinstance(args[0], torch.Tensor) and args[0].numel() >= _LARGE:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def make_light(make: Callable[[], _Made]) -> _Made:
    """Call `make`, which builds a model, without memory for its weights; where that fails, call it as it is.

    Errors are those of the second call.

    >>> make_light(lambda: torch.nn.Linear(10**5, 10**5)).weight.is_meta
    True
    """
    try:
        with LightTensors(), warnings.catch_warnings():
            # torch says that values which are loaded go nowhere, as they should
            warnings.filterwarnings("ignore", message=".*meta parameter.*")
            return make()
    except Exception:  # a value was asked for: the plain call decides what is wrong, if anything is
        return make()


def _count_elements(args: Sequence[Any], kwargs: Dict[str, Any]) -> int:
    sizes = kwargs.get("size", args[0] if args and isinstance(args[0], (tuple, list)) else args)
    listed = sizes if isinstance(sizes, (tuple, list)) else [sizes]
    return math.prod(size if isinstance(size, int) else 0 for size in listed)


def _cast_tensor(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Do what is left of `tensor.to(...)` where the tensor stays where it is."""
    other = kwargs.get("other", args[0] if args else None)
    dtype = other.dtype if isinstance(other, torch.Tensor) else kwargs.get("dtype")
    dtype = next((value for value in args if isinstance(value, torch.dtype)), dtype)
    with DisableTorchFunction():
        return tensor if dtype is None or dtype == tensor.dtype else tensor.to(dtype)
