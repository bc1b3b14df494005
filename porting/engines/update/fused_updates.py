"""The arithmetic of `updates` in torch's fused kernels: one pass over memory, rounded a little differently."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import torch

__all__ = ["FUSED_FAMILIES", "Arithmetic", "State", "Tensors", "find_fused_arithmetic"]

Tensors = List[torch.Tensor]
State = Dict[str, Tensors]
Arithmetic = Callable[[Any, Tensors, Tensors, State], None]


def find_fused_arithmetic(family: str, weights: Tensors, gradients: Tensors, state: State) -> Optional[Arithmetic]:
    """Return the fused form of an update, or None where torch has none for this family or these tensors."""
    # The kernels walk through memory by address. Two layouts of one shape would pair the wrong elements, without an
    # error.
    are_alike = all(
        tensor.stride() == weight.stride() and tensor.dtype == weight.dtype
        for tensors in (gradients, *(state[slot] for slot in ("Accl1", "Accl2") if slot in state))
        for weight, tensor in zip(weights, tensors)
    )
    return _FUSED.get(family) if are_alike else None


def _apply_sgd(s: Any, weights: Tensors, gradients: Tensors, state: State) -> None:
    # torch damps nothing without momentum, and never the first step; the device always does
    undamped = 1.0 if s.momentum else 1.0 - s.dampening
    torch._fused_sgd_(
        weights,
        gradients,
        state.get("Accl1", []),
        weight_decay=s.weight_decay,
        momentum=s.momentum,
        lr=s.learning_rate * undamped,
        dampening=s.dampening,
        nesterov=s.nesterov and bool(s.momentum),
        maximize=False,
        is_first_step=False,
    )


def _apply_adam(s: Any, weights: Tensors, gradients: Tensors, state: State) -> None:
    kernel = torch._fused_adamw_ if s.kind.name.startswith("ADAMW") else torch._fused_adam_
    kernel(
        weights,
        gradients,
        state["Accl1"],
        state["Accl2"],
        [],
        state["Step"],
        lr=s.learning_rate,
        beta1=s.beta1,
        beta2=s.beta2,
        weight_decay=s.weight_decay,
        eps=s.eps,
        amsgrad=False,
        maximize=False,
    )


_FUSED: Dict[str, Arithmetic] = {"SGD": _apply_sgd, "ADAM": _apply_adam, "ADAMW": _apply_adam}

FUSED_FAMILIES = frozenset(_FUSED)
"""The families of optimizers that torch has fused kernels for."""
