"""A loss scaling that follows the range of the gradients: doubled while they have room, halved when they run out of it.

A step whose share of gradient elements near the top of half precision's range exceeds a threshold halves the factor of
the loss scaling, any other doubles it, up to what half precision can hold.
"""

from __future__ import annotations

from typing import Sequence

import torch

from ..calls.device_state import DeviceState

__all__ = ["adapt_loss_scaling"]

_HIGHEST = torch.finfo(torch.float16).max
_NEAR_THE_TOP = 0.125 * _HIGHEST
_SHARE_NEAR_THE_TOP = 1e-7


def adapt_loss_scaling(state: DeviceState, gradients: Sequence[torch.Tensor]) -> None:
    """Set the factor of the next step's loss scaling from the gradients of this one, still scaled."""
    assert state.loss_scale_factor is not None
    num_elements = sum(gradient.numel() for gradient in gradients)
    # counted by what is not below, so that infinity and NaN are near the top too
    num_near_top = sum(int((~(gradient.abs() < _NEAR_THE_TOP)).sum()) for gradient in gradients)
    if num_near_top > _SHARE_NEAR_THE_TOP * num_elements:
        state.loss_scale_factor.mul_(0.5)
    elif state.final_loss_scale * 2 <= _HIGHEST:
        state.loss_scale_factor.mul_(2.0)
