"""`GroupSettings`: the settings of one parameter group as the device has them, for an optimizer of some kind."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Tuple

import torch

__all__ = ["GroupSettings", "OptimizerKind"]

# The device's optimizers, numbered from 0. SGD1 keeps gradient and velocity in one tensor, SGD2 apart.
OptimizerKind = enum.IntEnum(
    "OptimizerKind", "SGD1 SGD2 ADAM ADAMW ADAMW_NO_BIAS RMSPROP RMSPROP_CENTERED LAMB LAMB_NO_BIAS", start=0
)


@dataclass(frozen=True)
class GroupSettings:
    """The settings of one parameter group as plain numbers; those that its optimizer has no use for are neutral.

    For SGD ``first_order_type`` is the velocity's type. Two settings are equal whatever their parameters are.
    """

    kind: OptimizerKind
    learning_rate: float
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    beta1: float = 0.0
    beta2: float = 0.0
    eps: float = 0.0
    alpha: float = 0.0
    centered: bool = False
    max_weight_norm: float = math.inf
    use_tf_variant: bool = False
    loss_scaling: float = 1.0
    velocity_scaling: float = 1.0
    max_grad_norm: float = math.inf
    bias_correction: bool = True
    accum_type: torch.dtype = torch.float32
    first_order_type: torch.dtype = torch.float32
    second_order_type: torch.dtype = torch.float32
    params: Tuple[torch.Tensor, ...] = field(default=(), compare=False, repr=False)
