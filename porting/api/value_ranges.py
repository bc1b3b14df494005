"""What narrowing would change on the way to the device: integers beyond 32 bits, floats beyond single precision."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import torch

from ..diagnostics import BatchError, caller_place

__all__ = ["refuse_lost_values"]

_INT32, _FLOAT32 = torch.iinfo(torch.int32), torch.finfo(torch.float32)
_RANGES = {torch.int64: (_INT32.min, _INT32.max), torch.float64: (_FLOAT32.min, _FLOAT32.max)}
_NARROW = {torch.int64: "int32", torch.float64: "float32"}


def refuse_lost_values(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise BatchError B011 if an argument of 64 bits has a value that the device's 32 bits cannot hold.

    The device would compute with another one: 2**32 + 1 becomes 1, and 1e300 infinite. Infinite and missing values of
    the batch itself pass.
    """
    for position, value in enumerate(args):
        _look_at(value, "argument ", position)
    for name, value in kwargs.items():
        _look_at(value, "", f"`{name}`")


def _look_at(value: Any, prefix: str, name: Any) -> None:
    if isinstance(value, torch.Tensor):
        if value.dtype in _RANGES and value.is_cpu and value.numel():
            _refuse_if_lost(value, prefix, name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _look_at(item, f"{prefix}{name}", f"[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            _look_at(item, f"{prefix}{name}", f"[{position}]")


def _refuse_if_lost(tensor: torch.Tensor, prefix: str, name: Any) -> None:
    least, most = torch.aminmax(tensor)
    low, high = _RANGES[tensor.dtype]
    # comparisons with a missing value are false
    if least.item() >= low and most.item() <= high:
        return
    position = _first_lost(tensor.detach(), low, high)
    if position is None:
        return
    where = f" at [{', '.join(map(str, position))}]" if position else ""
    wide = str(tensor.dtype).replace("torch.", "")
    raise BatchError.of(
        "B011",
        message=f"{prefix}{name} has the value {tensor[tuple(position)].item()}{where}, which is beyond "
        f"{_NARROW[tensor.dtype]}",
        place=caller_place(),
        label="this call",
        notes=f"the device has no {wide}: it would compute with another value, and say nothing",
        help=(
            "hash or number identifiers anew, so that they are small: `torch.unique(ids, return_inverse=True)`"
            if tensor.dtype == torch.int64
            else "scale the data before the call"
        ),
    )


def _first_lost(tensor: torch.Tensor, low: float, high: float) -> Optional[Sequence[int]]:
    lost = (tensor < low) | (tensor > high)
    if tensor.dtype.is_floating_point:
        lost &= tensor.isfinite() & tensor.to(torch.float32).isinf()
    found = lost.nonzero()
    return [int(index) for index in found[0]] if len(found) else None
