"""Where halves meet single-precision numbers, PopTorch's device computes in halves; eager PyTorch refuses."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .tensors import flatten, map_tensors


class HalfCasts(TorchFunctionMode):
    """Within it a function that refuses mixed arguments gets halves."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if {tensor.dtype for tensor in flatten((args, kwargs))} < {torch.float16, torch.float32}:
            return func(*args, **kwargs)
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if "dtype" not in str(error) and "type" not in str(error):
                raise
            args, kwargs = map_tensors((args, kwargs), _halved)
            return func(*args, **kwargs)


def _halved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.dtype == torch.float32 else tensor
