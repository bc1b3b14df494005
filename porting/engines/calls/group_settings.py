"""An optimizer in the device's terms: its kind, and what the arithmetic needs of each parameter group."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

import torch

__all__ = ["GroupSettings", "OptimizerKind", "find_kind", "read_settings"]

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


def find_kind(optimizer: torch.optim.Optimizer) -> OptimizerKind:
    """Return the device's optimizer for a torch or PopTorch one; `AssertionError` if there is none."""
    if isinstance(optimizer, torch.optim.SGD):
        is_combined = getattr(optimizer, "use_combined_accum", False)
        return OptimizerKind.SGD1 if is_combined else OptimizerKind.SGD2
    # AdamW first: in recent torch it is derived from Adam.
    if isinstance(optimizer, torch.optim.AdamW):
        is_corrected = getattr(optimizer, "bias_correction", True)
        return OptimizerKind.ADAMW if is_corrected else OptimizerKind.ADAMW_NO_BIAS
    if isinstance(optimizer, torch.optim.Adam):
        is_decoupled = _read_common_flag(optimizer, "decoupled_weight_decay")
        return OptimizerKind.ADAMW if is_decoupled else OptimizerKind.ADAM
    if isinstance(optimizer, torch.optim.RMSprop):
        is_centered = _read_common_flag(optimizer, "centered")
        return OptimizerKind.RMSPROP_CENTERED if is_centered else OptimizerKind.RMSPROP
    # each backend has a class of its own, told by the setting that no other optimizer has
    if "max_weight_norm" in getattr(optimizer, "_group_vars", ()):
        return OptimizerKind.LAMB if vars(optimizer)["bias_correction"] else OptimizerKind.LAMB_NO_BIAS
    raise AssertionError(
        "Unsupported optimizer type. Types supported: SGD, Adam, AdamW and RMSprop of torch.optim; SGD, Adam, AdamW, "
        f"RMSprop and LAMB of poptorch.optim. Got {type(optimizer)}"
    )


def read_settings(optimizer: torch.optim.Optimizer) -> List[GroupSettings]:
    """Return what the device's arithmetic needs of each parameter group, read anew and not checked."""
    kind = find_kind(optimizer)
    own = optimizer.__dict__
    # What an optimizer does not have is neutral in `GroupSettings`.
    common: Dict[str, Any] = {
        name: own[name] for name in ("accum_type", "bias_correction", "use_tf_variant") if name in own
    }
    common.update({name: float(own[name]) for name in ("loss_scaling", "max_grad_norm") if name in own})
    found = []
    for group in optimizer.param_groups:
        beta1, beta2 = group.get("betas", (0.0, 0.0))
        values: Dict[str, Any] = {name: float(group[name]) for name in _GROUP_NUMBERS if name in group}
        settings = GroupSettings(
            kind=kind,
            learning_rate=float(group["lr"]),
            nesterov=bool(group.get("nesterov", False)),
            beta1=float(beta1),
            beta2=float(beta2),
            centered=kind == OptimizerKind.RMSPROP_CENTERED,
            first_order_type=own.get("velocity_accum_type", own.get("first_order_momentum_accum_type", torch.float32)),
            second_order_type=own.get("second_order_momentum_accum_type", torch.float32),
            params=tuple(group["params"]),
            **values,
            **common,
        )
        found.append(settings)
    return found


def _read_common_flag(optimizer: torch.optim.Optimizer, name: str) -> bool:
    first, *others = [bool(group.get(name, False)) for group in optimizer.param_groups]
    for i, flag in enumerate(others, 1):
        if flag != first:
            raise AssertionError(
                f"All parameter groups must have the same value for the '{name}' attribute (Group 0: {first} / "
                f"Group {i}: {flag})"
            )
    return first


_GROUP_NUMBERS = ("weight_decay", "momentum", "dampening", "eps", "alpha", "max_weight_norm", "velocity_scaling")
