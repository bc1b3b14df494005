"""Update all parameters once from their reduced gradients, as the device's optimizers do.

Formulae of PopTorch's back-end (g = gradient, w = weight, t = number of this update, from 1):

* SGD: g += wd*w; v = momentum*v + (1-dampening)*g, v0 = 0; w -= lr*v, nesterov: w -= lr*(g + momentum*v).
  torch differs when dampening is not 0: it does not damp the first update, nor any when momentum is 0.
* Adam, AdamW, RMSprop: as torch; AdamW without bias correction still corrects it, as the device does.
* LAMB: Adam's direction with decoupled decay, scaled by min(|w|, max_weight_norm) / |direction|.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ...comparison.tensors import round_at_random
from ...torch_insides.optimizers import FUSED, foreach
from ...torch_insides.tensors import is_zero_tensor
from ..calls.call_plan import GradientExchange
from ..calls.group_settings import GroupSettings
from .update_parts import cut_update

if TYPE_CHECKING:  # the state of a captured step, and what captures needs a torch that can
    from ..calls.device_state import DeviceState

__all__ = [
    "adapt_loss_scaling",
    "apply_update",
    "compute_clip_factor",
    "ensure_slots",
    "find_fused_arithmetic",
    "find_optimizer_family",
    "has_fused_arithmetic",
    "list_slots",
]

Slots = Dict[str, torch.Tensor]
Tensors = List[torch.Tensor]
State = Dict[str, Tensors]
Arithmetic = Callable[[GroupSettings, Tensors, Tensors, State], None]


def apply_update(
    groups: Sequence[GroupSettings],
    group_names: Sequence[Sequence[str]],
    parameters: Mapping[str, torch.Tensor],
    slots: Dict[str, Slots],
    *,
    loss_scaling: Optional[float] = None,
    accumulated: Optional[Mapping[str, torch.Tensor]] = None,
    scale: float = 1.0,
    exchange: Optional[GradientExchange] = None,
    observe: Optional[Callable[[Sequence[torch.Tensor]], None]] = None,
    rounds_at_random: bool = False,
    is_fused: bool = False,
) -> None:
    """Update `parameters` in place from their `.grad`, and clear the gradients.

    `groups` are the settings of the parameter groups (`kind`, `learning_rate`, `momentum`, ... as numbers),
    `group_names` the parameters of each. Parameters without a gradient are left alone. Some gradients may be in
    `accumulated` instead. They are rounded to the accumulator's type, added up over processes by `exchange`, multiplied
    by `scale`, shown to `observe`, divided by `loss_scaling` (that of the settings unless given) and clipped to
    `max_grad_norm` (global norm over all groups) before the arithmetic.
    With `rounds_at_random` half-precision results are rounded up or down in proportion to the distance; with `is_fused`
    torch's fused kernels do the arithmetic where they can, which rounds otherwise.
    """
    with torch.no_grad():
        found = accumulated or {}
        trained = [
            [name for name in names if parameters[name].grad is not None or name in found] for names in group_names
        ]
        gradients = [
            [_round_to_accumulator(found.get(name, parameters[name].grad), settings.accum_type) for name in names]
            for settings, names in zip(groups, trained)
        ]
        everything = [gradient for of_group in gradients for gradient in of_group]
        # In the device's order: exchange, mean, observation, scaling, clipping. Each works on what the last one left,
        # in place.
        if everything:
            # before the mean is taken, which is over the micro-batches of all processes
            if exchange is not None:
                exchange(everything)
            if scale != 1.0:
                foreach.mul_(everything, scale)
            # the range of half precision matters while the gradients are still scaled
            if observe is not None:
                observe(everything)
            divisor = groups[0].loss_scaling if loss_scaling is None else loss_scaling
            if divisor != 1.0:
                foreach.mul_(everything, 1.0 / divisor)
            max_norm = groups[0].max_grad_norm
            if not math.isinf(max_norm):
                # the norm of norms: one number for each parameter instead of a copy of all gradients in one tensor
                norms = torch.stack(foreach.norm(everything))
                foreach.mul_(everything, compute_clip_factor(norms, max_norm))
            for settings, names, of_group in zip(groups, trained, gradients):
                if names:
                    named = {name: parameters[name] for name in names}
                    _update_group(settings, named, of_group, slots, rounds_at_random, is_fused)
    for parameter in parameters.values():
        # None, not zeros: the next backward pass then stores its gradient instead of adding to it.
        parameter.grad = None


def _round_to_accumulator(gradient: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return a gradient as its accumulator holds it, in single precision; it may be written to."""
    # A zero tensor is autograd's shorthand for a gradient that is zero everywhere, and nobody can write to it.
    is_zero = is_zero_tensor(gradient)
    single: torch.Tensor = torch.zeros_like(gradient, dtype=torch.float32) if is_zero else gradient.float()
    # Through the type and back: the device's accumulator has lost these bits.
    return single if dtype == torch.float32 else single.to(dtype).float()


def compute_clip_factor(norms: torch.Tensor, max_norm: Union[float, torch.Tensor]) -> torch.Tensor:
    """Return the factor that brings gradients of these `norms` down to a global norm of `max_norm`, as torch does."""
    return torch.clamp(max_norm / (torch.linalg.vector_norm(norms) + 1e-6), max=1.0)


def adapt_loss_scaling(state: DeviceState, gradients: Sequence[torch.Tensor]) -> None:
    """Set the factor of the next step's loss scaling from the gradients of this one, still scaled.

    A step whose share of gradient elements near the top of half precision's range exceeds a threshold halves the
    factor. Any other step doubles it, up to what half precision can hold.
    """
    assert state.loss_scale_factor is not None
    highest = torch.finfo(torch.float16).max
    num_elements = sum(gradient.numel() for gradient in gradients)
    # counted by what is not below, so that infinity and NaN are near the top too
    num_near_top = sum(int((~(gradient.abs() < 0.125 * highest)).sum()) for gradient in gradients)
    if num_near_top > 1e-7 * num_elements:
        state.loss_scale_factor.mul_(0.5)
    elif state.final_loss_scale * 2 <= highest:
        state.loss_scale_factor.mul_(2.0)


def list_slots(settings: GroupSettings) -> Tuple[str, ...]:
    """Return the names of the state tensors that the optimizer of `settings` keeps for each parameter."""
    family = find_optimizer_family(settings)
    if family == "SGD":
        return ("Accl1",) if settings.momentum else ()
    if family == "RMSPROP":
        return ("Accl1", *(("Accl2",) if settings.momentum else ()), *(("Accl3",) if settings.centered else ()))
    return ("Accl1", "Accl2", "Step")


def ensure_slots(
    settings: GroupSettings, names: Sequence[str], parameters: Mapping[str, torch.Tensor], slots: Dict[str, Slots]
) -> None:
    """Create the missing state tensors of the parameters called `names`; they start at 0, the TF variant's at 1."""
    wanted = list_slots(settings)
    for name in names:
        own = slots.setdefault(name, {})
        for slot in wanted:
            if slot not in own:
                own[slot] = _make_slot(settings, slot, parameters[name])


def _make_slot(settings: GroupSettings, slot: str, parameter: torch.Tensor) -> torch.Tensor:
    if slot == "Step":
        return torch.zeros(())
    # TensorFlow's RMSprop begins with a mean square of one, so that its first steps are small.
    starts_at_one = slot == "Accl1" and find_optimizer_family(settings) == "RMSPROP" and settings.use_tf_variant
    dtype = settings.second_order_type if slot == "Accl2" else settings.first_order_type
    return torch.full_like(parameter, 1.0 if starts_at_one else 0.0, dtype=dtype, requires_grad=False)


def find_optimizer_family(settings: GroupSettings) -> str:
    """Return which formulae update a group: "SGD", "ADAM", "ADAMW", "RMSPROP" or "LAMB"."""
    return _find_family(settings.kind.name)


@lru_cache(maxsize=None)
def _find_family(kind: str) -> str:
    for family in _ARITHMETIC:
        if kind.startswith(family):
            return family
    raise ValueError(f"unknown optimizer kind {kind}")


def has_fused_arithmetic(settings: GroupSettings) -> bool:
    """Tell whether torch has a fused form of the update of `settings`, for tensors that are laid out alike."""
    return find_optimizer_family(settings) in _FUSED


def _update_group(
    settings: GroupSettings,
    named: Slots,
    gradients: Tensors,
    slots: Dict[str, Slots],
    rounds_at_random: bool,
    is_fused: bool,
) -> None:
    names, weights = list(named), list(named.values())
    try:
        state = _list_state(settings, names, slots)
    except KeyError:  # the first update of some of them
        ensure_slots(settings, names, named, slots)
        state = _list_state(settings, names, slots)
    if "Step" in state:
        foreach.add_(state["Step"], 1.0)
    # Single precision is updated in place, and nothing is left to store. Half precision is computed in single and
    # rounded once.
    single_weights = _widen_tensors(weights)
    single_state = {slot: _widen_tensors(tensors) for slot, tensors in state.items()}
    family = find_optimizer_family(settings)
    fused = find_fused_arithmetic(family, single_weights, gradients, single_state) if is_fused else None
    if fused is not None or family not in _KEEPS_MORE:
        (fused or _ARITHMETIC[family])(settings, single_weights, gradients, single_state)
    else:
        for part in cut_update(single_weights, gradients, single_state, cuts_tensors=family != "LAMB"):
            _ARITHMETIC[family](settings, *part)
    for targets, values in ((weights, single_weights), *((state[slot], single_state[slot]) for slot in state)):
        for target, value in zip(targets, values):
            if target is not value:
                target.copy_(round_at_random(value, target.dtype) if rounds_at_random else value)


def _list_state(settings: GroupSettings, names: Sequence[str], slots: Mapping[str, Slots]) -> State:
    """List each state tensor over all parameters: the `foreach` operators then run once for all of them."""
    by_parameter = [slots[name] for name in names]
    return {slot: [own[slot] for own in by_parameter] for slot in list_slots(settings)}


def _widen_tensors(tensors: Tensors) -> Tensors:
    """Return tensors in single precision; those that are in it are themselves."""
    return [tensor if tensor.dtype is torch.float32 else tensor.float() for tensor in tensors]


# -- In single precision; weights and state change in place, gradients are used up. The operations and their order are
# -- those of torch's own optimizers in their default form, so that a port's weights are the same to the last bit.


def _apply_sgd(s: GroupSettings, weights: Tensors, gradients: Tensors, state: State) -> None:
    if s.weight_decay:
        foreach.add_(gradients, weights, alpha=s.weight_decay)
    if not s.momentum:
        foreach.add_(weights, gradients, alpha=-s.learning_rate * (1.0 - s.dampening))
        return
    velocities = state["Accl1"]
    foreach.mul_(velocities, s.momentum)
    foreach.add_(velocities, gradients, alpha=1.0 - s.dampening)
    if s.nesterov:
        foreach.add_(gradients, velocities, alpha=s.momentum)
    foreach.add_(weights, gradients if s.nesterov else velocities, alpha=-s.learning_rate)


def _update_moments(s: GroupSettings, gradients: Tensors, state: State, *, is_corrected: bool = True) -> Tensors:
    """Update both moments; return what the first one is to be divided by, in the memory of the gradients."""
    # `lerp`, as torch writes it: m + (g - m)(1 - beta) rounds otherwise than beta m + (1 - beta) g.
    foreach.lerp_(state["Accl1"], gradients, 1.0 - s.beta1)
    foreach.mul_(state["Accl2"], s.beta2)
    foreach.addcmul_(state["Accl2"], gradients, gradients, 1.0 - s.beta2)
    # a tensor more for each would make the step's peak higher
    denominators = gradients
    foreach.copy_(denominators, state["Accl2"])
    foreach.sqrt_(denominators)
    # The corrections are Python numbers in double precision, as torch computes them.
    corrections = _compute_bias_corrections(state, s.beta2, is_corrected)
    foreach.div_(denominators, [*map(math.sqrt, corrections)])
    foreach.add_(denominators, s.eps)
    return denominators


def _compute_bias_corrections(state: State, beta: float, is_on: bool) -> List[float]:
    """Return 1 - beta^t for each parameter; those that sat out a step have made fewer updates."""
    return [1.0 - beta ** int(step) if is_on else 1.0 for step in state["Step"]]


def _apply_adam(s: GroupSettings, weights: Tensors, gradients: Tensors, state: State) -> None:
    if s.weight_decay and find_optimizer_family(s) == "ADAMW":
        foreach.mul_(weights, 1.0 - s.learning_rate * s.weight_decay)
    elif s.weight_decay:
        foreach.add_(gradients, weights, alpha=s.weight_decay)
    denominators = _update_moments(s, gradients, state)
    rates = [-s.learning_rate / c for c in _compute_bias_corrections(state, s.beta1, True)]
    foreach.addcdiv_(weights, state["Accl1"], denominators, rates)


def _apply_rmsprop(s: GroupSettings, weights: Tensors, gradients: Tensors, state: State) -> None:
    if s.weight_decay:
        foreach.add_(gradients, weights, alpha=s.weight_decay)
    squares = state["Accl1"]
    foreach.mul_(squares, s.alpha)
    foreach.addcmul_(squares, gradients, gradients, 1.0 - s.alpha)
    denominators = squares
    if s.centered:
        means = state["Accl3"]
        foreach.lerp_(means, gradients, 1.0 - s.alpha)
        denominators = list(foreach.addcmul(squares, means, means, -1.0))
    if s.use_tf_variant:
        denominators = list(foreach.sqrt(foreach.add(denominators, s.eps)))
        foreach.mul_(gradients, s.learning_rate)
    else:
        denominators = list(foreach.add(foreach.sqrt(denominators), s.eps))
    rate = 1.0 if s.use_tf_variant else s.learning_rate
    if not s.momentum:
        foreach.addcdiv_(weights, gradients, denominators, -rate)
        return
    foreach.mul_(state["Accl2"], s.momentum)
    foreach.addcdiv_(state["Accl2"], gradients, denominators)
    foreach.add_(weights, state["Accl2"], alpha=-rate)


def _apply_lamb(s: GroupSettings, weights: Tensors, gradients: Tensors, state: State) -> None:
    denominators = _update_moments(s, gradients, state, is_corrected=s.bias_correction)
    directions = foreach.div(state["Accl1"], _compute_bias_corrections(state, s.beta1, s.bias_correction))
    foreach.div_(directions, denominators)
    foreach.add_(directions, weights, alpha=s.weight_decay)
    weight_norms = torch.stack(foreach.norm(weights)).clamp(max=s.max_weight_norm)
    direction_norms = torch.stack(foreach.norm(directions))
    # a weight of zeros could never leave them if its norm scaled the step
    are_both = (weight_norms > 0) & (direction_norms > 0)
    trust = torch.where(are_both, weight_norms / direction_norms, torch.ones_like(weight_norms))
    foreach.mul_(directions, list((trust * -s.learning_rate).unbind()))
    foreach.add_(weights, directions)


# In the order in which the names of kinds are looked through: "ADAMW_NO_BIAS" begins with both of Adam's.
_ARITHMETIC: Dict[str, Arithmetic] = {
    "SGD": _apply_sgd,
    "ADAMW": _apply_adam,
    "ADAM": _apply_adam,
    "RMSPROP": _apply_rmsprop,
    "LAMB": _apply_lamb,
}


# Formulae that need tensors besides weights, gradients and state; that of LAMB takes the norm of each.
_KEEPS_MORE = frozenset(["ADAM", "ADAMW", "LAMB", "RMSPROP"])


# -- the same in torch's fused kernels: one pass over memory, rounded a little differently -----------------------------


def find_fused_arithmetic(family: str, weights: Tensors, gradients: Tensors, state: State) -> Optional[Arithmetic]:
    """Return the fused form of an update, or None where torch has none for this family or these tensors."""
    # The kernels walk through memory by address. Two layouts of one shape would pair the wrong elements, without an
    # error.
    are_alike = all(
        tensor.stride() == weight.stride() and tensor.dtype == weight.dtype
        for tensors in (gradients, *(state[slot] for slot in ("Accl1", "Accl2") if slot in state))
        for weight, tensor in zip(weights, tensors)
    )
    return _FUSED.get(family) if are_alike and FUSED.get(family) is not None else None


def _apply_fused_sgd(s: GroupSettings, weights: Tensors, gradients: Tensors, state: State) -> None:
    # torch damps nothing without momentum, and never the first step; the device always does
    undamped = 1.0 if s.momentum else 1.0 - s.dampening
    FUSED["SGD"](
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


def _apply_fused_adam(s: GroupSettings, weights: Tensors, gradients: Tensors, state: State) -> None:
    FUSED[find_optimizer_family(s)](
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


_FUSED: Dict[str, Arithmetic] = {"SGD": _apply_fused_sgd, "ADAM": _apply_fused_adam, "ADAMW": _apply_fused_adam}
