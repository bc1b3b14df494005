"""The device's optimizer arithmetic: one update of all parameters from their reduced gradients.

Formulae of PopTorch's back-end (g = gradient, w = weight, t = number of this update, from 1):

* SGD: g += wd*w; v = momentum*v + (1-dampening)*g, v0 = 0; w -= lr*v, nesterov: w -= lr*(g + momentum*v).
  torch differs when dampening is not 0: it does not damp the first update, nor any when momentum is 0.
* Adam, AdamW, RMSprop: as torch; AdamW without bias correction still corrects it, as the device does.
* LAMB: Adam's direction with decoupled decay, scaled by min(|w|, max_weight_norm) / |direction|.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

__all__ = ["apply_update", "slot_names"]

Slots = Dict[str, torch.Tensor]


def apply_update(
    groups: Sequence[Any],
    group_names: Sequence[Sequence[str]],
    parameters: Mapping[str, torch.Tensor],
    slots: Dict[str, Slots],
) -> None:
    """Update `parameters` in place from their `.grad`, and clear the gradients.

    `groups` are the settings of the parameter groups (`kind`, `learning_rate`, `momentum`, ... as numbers),
    `group_names` the parameters of each. Parameters without a gradient are left alone. Gradients are divided by the
    loss scaling and clipped to `max_grad_norm` (global norm over all groups) before the arithmetic.
    """
    trained = [[name for name in names if parameters[name].grad is not None] for names in group_names]
    gradients = [parameters[name].grad for names in trained for name in names]
    if gradients and groups:
        _unscale(gradients, groups[0].loss_scaling)
        _clip(gradients, groups[0].max_grad_norm)
        with torch.no_grad():
            for settings, names in zip(groups, trained):
                if names:
                    _update_group(settings, names, parameters, slots)
    for parameter in parameters.values():
        parameter.grad = None


def _unscale(gradients: Sequence[torch.Tensor], loss_scaling: float) -> None:
    if loss_scaling != 1.0:
        torch._foreach_mul_(list(gradients), 1.0 / loss_scaling)


def _clip(gradients: Sequence[torch.Tensor], max_norm: float) -> None:
    if not math.isinf(max_norm):
        total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients))).float())
        scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)  # the form of torch.nn.utils.clip_grad_norm_
        torch._foreach_mul_(list(gradients), scale)


def slot_names(settings: Any) -> Tuple[str, ...]:
    """Return the names of the state tensors that the optimizer of `settings` keeps for each parameter."""
    family = _family(settings)
    if family == "SGD":
        return ("Accl1",) if settings.momentum else ()
    if family == "RMSPROP":
        return ("Accl1", *(("Accl2",) if settings.momentum else ()), *(("Accl3",) if settings.centered else ()))
    return ("Accl1", "Accl2", "Step")


def ensure_slots(settings: Any, names: Sequence[str], parameters: Mapping[str, torch.Tensor], slots: Dict) -> None:
    """Create the missing state tensors of the parameters called `names`; they start at 0, the TF variant's at 1."""
    for name in names:
        own = slots.setdefault(name, {})
        for slot in slot_names(settings):
            if slot not in own:
                start = 1.0 if slot == "Accl1" and _family(settings) == "RMSPROP" and settings.use_tf_variant else 0.0
                dtype = settings.second_order_type if slot == "Accl2" else settings.first_order_type
                shape = () if slot == "Step" else parameters[name].shape
                own[slot] = torch.full(shape, start, dtype=torch.float32 if slot == "Step" else dtype)


def _family(settings: Any) -> str:
    name = settings.kind.name
    for family in ("SGD", "ADAMW", "ADAM", "RMSPROP", "LAMB"):
        if name.startswith(family):
            return family
    raise ValueError(f"unknown optimizer kind {name}")


def _update_group(
    settings: Any, names: Sequence[str], parameters: Mapping[str, torch.Tensor], slots: Dict[str, Slots]
) -> None:
    ensure_slots(settings, names, parameters, slots)
    family = _family(settings)
    weights = [parameters[name].detach() for name in names]
    gradients = [parameters[name].grad for name in names]
    state = [slots[name] for name in names]
    fused = _FUSED.get(family)
    if fused is not None and _all_single_precision(weights, state):
        fused(settings, weights, gradients, state)
        return
    for weight, gradient, own in zip(weights, gradients, state):
        _SINGLE[family](settings, weight, gradient, own)


def _all_single_precision(weights: Sequence[torch.Tensor], state: Sequence[Slots]) -> bool:
    tensors = [*weights, *(tensor for own in state for tensor in own.values())]
    return all(tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in tensors)


# -- all parameters of a group in one kernel -----------------------------------------------------------------------


def _fused_sgd(s: Any, weights: List[torch.Tensor], gradients: List[torch.Tensor], state: List[Slots]) -> None:
    velocities = [own["Accl1"] for own in state] if s.momentum else []
    torch._fused_sgd_(
        weights,
        gradients,
        velocities,
        weight_decay=s.weight_decay,
        momentum=s.momentum,
        lr=s.learning_rate if s.momentum else s.learning_rate * (1.0 - s.dampening),
        dampening=s.dampening if s.momentum else 0.0,
        nesterov=bool(s.nesterov and s.momentum),
        maximize=False,
        is_first_step=False,
    )


def _fused_adam(s: Any, weights: List[torch.Tensor], gradients: List[torch.Tensor], state: List[Slots]) -> None:
    steps = [own["Step"] for own in state]
    torch._foreach_add_(steps, 1.0)
    kernel = torch._fused_adamw_ if _family(s) == "ADAMW" else torch._fused_adam_
    kernel(
        weights,
        gradients,
        [own["Accl1"] for own in state],
        [own["Accl2"] for own in state],
        [],
        steps,
        lr=s.learning_rate,
        beta1=s.beta1,
        beta2=s.beta2,
        weight_decay=s.weight_decay,
        eps=s.eps,
        amsgrad=False,
        maximize=False,
    )


_FUSED: Dict[str, Callable[..., None]] = {"SGD": _fused_sgd, "ADAM": _fused_adam, "ADAMW": _fused_adam}


# -- one parameter, any precision: computed in float32, stored in the types of weight and state --------------------


def _sgd(s: Any, weight: torch.Tensor, gradient: torch.Tensor, own: Slots) -> None:
    w, g = weight.float(), gradient.float()
    g = g.add(w, alpha=s.weight_decay) if s.weight_decay else g
    damped = g * (1.0 - s.dampening)
    if not s.momentum:
        weight.copy_(w.sub(damped, alpha=s.learning_rate))
        return
    v = own["Accl1"].float().mul(s.momentum).add(damped)
    own["Accl1"].copy_(v)
    weight.copy_(w.sub(g.add(v, alpha=s.momentum) if s.nesterov else v, alpha=s.learning_rate))


def _moments(s: Any, gradient: torch.Tensor, own: Slots) -> Tuple[torch.Tensor, torch.Tensor, int]:
    own["Step"].add_(1.0)
    m = own["Accl1"].float().lerp(gradient, 1.0 - s.beta1)
    v = own["Accl2"].float().mul(s.beta2).addcmul(gradient, gradient, value=1.0 - s.beta2)
    own["Accl1"].copy_(m)
    own["Accl2"].copy_(v)
    return m, v, int(own["Step"].item())


def _adam(s: Any, weight: torch.Tensor, gradient: torch.Tensor, own: Slots) -> None:
    w, g = weight.float(), gradient.float()
    decoupled = _family(s) == "ADAMW"
    if s.weight_decay and not decoupled:
        g = g.add(w, alpha=s.weight_decay)
    m, v, step = _moments(s, g, own)
    if s.weight_decay and decoupled:
        w = w * (1.0 - s.learning_rate * s.weight_decay)
    denominator = v.sqrt().div(math.sqrt(1.0 - s.beta2**step)).add(s.eps)
    weight.copy_(w.addcdiv(m, denominator, value=-s.learning_rate / (1.0 - s.beta1**step)))


def _rmsprop(s: Any, weight: torch.Tensor, gradient: torch.Tensor, own: Slots) -> None:
    w, g = weight.float(), gradient.float()
    g = g.add(w, alpha=s.weight_decay) if s.weight_decay else g
    square = own["Accl1"].float().mul(s.alpha).addcmul(g, g, value=1.0 - s.alpha)
    own["Accl1"].copy_(square)
    variance = square
    if s.centered:
        mean = own["Accl3"].float().lerp(g, 1.0 - s.alpha)
        own["Accl3"].copy_(mean)
        variance = square - mean * mean
    denominator = (variance + s.eps).sqrt() if s.use_tf_variant else variance.sqrt() + s.eps
    step = g / denominator * (s.learning_rate if s.use_tf_variant else 1.0)
    if s.momentum:
        step = own["Accl2"].float().mul(s.momentum).add(step)
        own["Accl2"].copy_(step)
    weight.copy_(w.sub(step, alpha=1.0 if s.use_tf_variant else s.learning_rate))


def _lamb(s: Any, weight: torch.Tensor, gradient: torch.Tensor, own: Slots) -> None:
    w = weight.float()
    m, v, step = _moments(s, gradient.float(), own)
    if s.bias_correction:
        m, v = m / (1.0 - s.beta1**step), v / (1.0 - s.beta2**step)
    direction = (m / (v.sqrt() + s.eps)).add(w, alpha=s.weight_decay)
    weight_norm: Optional[torch.Tensor] = torch.linalg.vector_norm(w).clamp(max=s.max_weight_norm)
    direction_norm = torch.linalg.vector_norm(direction)
    both = (weight_norm > 0) & (direction_norm > 0)  # type: ignore[operator]
    trust = torch.where(both, weight_norm / direction_norm, torch.ones_like(direction_norm))  # type: ignore[operator]
    weight.copy_(w - s.learning_rate * trust * direction)


_SINGLE: Dict[str, Callable[..., None]] = {
    "SGD": _sgd,
    "ADAM": _adam,
    "ADAMW": _adam,
    "RMSPROP": _rmsprop,
    "LAMB": _lamb,
}
