"""The same arithmetic as `updates`, in torch's fused kernels: one pass over memory, rounded a little differently."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

__all__ = ["fused_arithmetic", "has_fused_arithmetic"]

Tensors = List[torch.Tensor]
Arithmetic = Callable[[Any, Tensors, Tensors, Dict[str, Tensors]], None]

# The kernels go through memory element by element, whatever the strides say.
_IN_STEP = ("Accl1", "Accl2")


def has_fused_arithmetic(settings: Any) -> bool:
    """Tell whether torch has a fused form of the update of `settings`, for tensors that are laid out alike."""
    return _find_family(settings.kind.name) in _ARITHMETIC


def fused_arithmetic(
    settings: Any, weights: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], state: Dict[str, Tensors]
) -> Optional[Arithmetic]:
    """Return the fused form of an update, or None where torch has none for these settings or tensors."""
    arithmetic = _ARITHMETIC.get(_find_family(settings.kind.name))
    if arithmetic is None:
        return None
    others = [gradients, *(state[slot] for slot in _IN_STEP if slot in state)]
    # The kernels walk through memory by address. Two layouts of one shape would pair the wrong elements, without an
    # error.
    are_alike = all(
        tensor.stride() == weight.stride() and tensor.dtype == weight.dtype
        for tensors in others
        for weight, tensor in zip(weights, tensors)
    )
    # the caller then takes the plain form, which can do everything
    return arithmetic if are_alike else None


def _find_family(kind: str) -> str:
    return next((family for family in ("SGD", "ADAMW", "ADAM") if kind.startswith(family)), "")


def _apply_sgd(s: Any, weights: Tensors, gradients: Tensors, state: Dict[str, Tensors]) -> None:
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


def _apply_adam(s: Any, weights: Tensors, gradients: Tensors, state: Dict[str, Tensors]) -> None:
    is_decoupled = _find_family(s.kind.name) == "ADAMW"
    kernel = torch._fused_adamw_ if is_decoupled else torch._fused_adam_
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


_ARITHMETIC: Dict[str, Arithmetic] = {"SGD": _apply_sgd, "ADAM": _apply_adam, "ADAMW": _apply_adam}
