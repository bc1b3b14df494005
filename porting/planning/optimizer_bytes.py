"""This module counts what an optimizer of the device keeps for each weight; plans and bounds of memory use it."""

from __future__ import annotations

from typing import Optional

import torch

__all__ = ["count_accumulator_bytes", "count_bytes_per_weight", "count_state_bytes"]

_WITH_TWO_MOMENTS = ("Adam", "AdamW", "LAMB")


def count_bytes_per_weight(optimizer: Optional[torch.optim.Optimizer]) -> int:
    """Return the bytes of the accumulated gradient and of the optimizer's state of one weight."""
    return count_accumulator_bytes(optimizer) + count_state_bytes(optimizer)


def count_accumulator_bytes(optimizer: Optional[torch.optim.Optimizer]) -> int:
    """Return the bytes of one weight's accumulated gradient: none where SGD adds gradients up in the velocity."""
    return 0 if getattr(optimizer, "use_combined_accum", False) else _find_width(optimizer, "accum_type")


def count_state_bytes(optimizer: Optional[torch.optim.Optimizer]) -> int:
    """Return the bytes that the optimizer keeps for each weight, apart from the accumulated gradient."""
    if optimizer is None:
        return 0
    name, settings = type(optimizer).__name__, [group.get for group in optimizer.param_groups]
    velocity = _find_width(optimizer, "velocity_accum_type") * any(float(get("momentum", 0.0)) for get in settings)
    second = _find_width(optimizer, "second_order_momentum_accum_type")
    if name in _WITH_TWO_MOMENTS:
        return _find_width(optimizer, "first_order_momentum_accum_type") + second
    return velocity + second * (1 + any(get("centered", False) for get in settings)) * (name == "RMSprop")


def _find_width(optimizer: Optional[torch.optim.Optimizer], name: str) -> int:
    """Return the bytes of one number of the optimizer's state that its attribute `name` gives a type."""
    return 2 if getattr(optimizer, name, None) == torch.float16 else 4
