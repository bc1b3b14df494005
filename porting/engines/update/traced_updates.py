"""The optimizer arithmetic of `updates` for one parameter, as operators that a compiler makes one pass over memory of.

What changes the operators is the group's *structure*: the optimizer's kind, whether there is momentum or weight decay,
the types. All else are *hyper-parameters*, which may be others in each step. They are computed on the host in double
precision, as torch computes its scalars, and come as tensors without dimensions in single precision.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import torch

from ...capture.plain_values import dtype_name
from ..calls.group_settings import GroupSettings
from .updates import find_optimizer_family, list_slots

__all__ = [
    "STEP_HYPER_PARAMETERS",
    "compute_group_hyper_parameters",
    "compute_step_hyper_parameters",
    "compute_update",
    "describe_update",
    "list_hyper_parameters",
]

Structure = Mapping[str, Any]
Slots = Mapping[str, torch.Tensor]
HyperParameters = Mapping[str, torch.Tensor]
Updated = Tuple[torch.Tensor, Dict[str, torch.Tensor]]

STEP_HYPER_PARAMETERS: Tuple[str, ...] = ("loss_seed", "gradient_scale", "max_grad_norm")
"""The hyper-parameters of a step that belong to no group."""


def describe_update(settings: GroupSettings) -> Dict[str, Any]:
    """Return what the operators of a group's update depend on, as plain values, fit for JSON."""
    family = find_optimizer_family(settings)
    return {
        "family": family,
        "weight_decay": family == "LAMB" or settings.weight_decay != 0,
        "momentum": family in ("SGD", "RMSPROP") and settings.momentum != 0,
        "nesterov": family == "SGD" and bool(settings.nesterov),
        "centered": family == "RMSPROP" and bool(settings.centered),
        "use_tf_variant": family == "RMSPROP" and bool(settings.use_tf_variant),
        "bias_correction": family in ("ADAM", "ADAMW") or (family == "LAMB" and bool(settings.bias_correction)),
        "clips": not math.isinf(settings.max_grad_norm),
        "accum_type": dtype_name(settings.accum_type),
        "first_order_type": dtype_name(settings.first_order_type),
        "second_order_type": dtype_name(settings.second_order_type),
        "slots": list(list_slots(settings)),
    }


# -- hyper-parameters --------------------------------------------------------------------------------------------------

_NAMES: Mapping[str, Tuple[str, ...]] = {
    family: tuple(names.split())
    for family, names in {
        "SGD": "weight_decay momentum gain rate",
        "ADAM": "weight_decay gain1 beta2 gain2 eps inverse_root rate",
        "ADAMW": "keep gain1 beta2 gain2 eps inverse_root rate",
        "RMSPROP": "weight_decay alpha gain eps learning_rate momentum",
        "LAMB": "weight_decay gain1 beta2 gain2 eps inverse_root inverse_correction max_weight_norm rate",
    }.items()
}


def list_hyper_parameters(structure: Structure) -> Tuple[str, ...]:
    """Return the names of the hyper-parameters of a group, in the order of `compute_group_hyper_parameters`."""
    return _NAMES[structure["family"]]


def compute_step_hyper_parameters(groups: Sequence[Any], *, backward_scale: float, update_scale: float) -> List[float]:
    """Return the values of `STEP_HYPER_PARAMETERS`: the first group's loss scaling and bound of the gradients hold.

    Gradients are those of the loss times its scaling and `backward_scale`; the update undoes the scaling and
    multiplies by `update_scale`.
    """
    loss_scaling = groups[0].loss_scaling if groups else 1.0
    max_norm = groups[0].max_grad_norm if groups else math.inf
    return [loss_scaling * backward_scale, update_scale / loss_scaling, max_norm]


def compute_group_hyper_parameters(settings: GroupSettings, structure: Structure, *, count: int) -> List[float]:
    """Return the hyper-parameters of a group for its update number `count`, from 1."""
    s, family, corrected = settings, structure["family"], structure["bias_correction"]
    # In double precision on the host, as torch does it; the program gets the rounded results.
    correction1 = 1.0 - s.beta1**count if corrected else 1.0
    correction2 = 1.0 - s.beta2**count if corrected else 1.0
    gain = 1.0 - (s.dampening if family == "SGD" else s.alpha)
    rate = -s.learning_rate
    if family == "SGD" and not structure["momentum"]:
        rate *= gain
    # LAMB has its correction apart, inside of the direction that it scales
    elif family != "LAMB":
        rate /= correction1
    values = {
        "keep": 1.0 - s.learning_rate * s.weight_decay,
        "gain": gain,
        "gain1": 1.0 - s.beta1,
        "gain2": 1.0 - s.beta2,
        # a second moment that is not averaged (beta2 = 1) stays zero and has no correction
        "inverse_root": 1.0 / math.sqrt(correction2) if correction2 > 0 else math.inf,
        "inverse_correction": 1.0 / correction1 if correction1 else math.inf,
        "rate": rate,
    }
    return [values[name] if name in values else getattr(s, name) for name in list_hyper_parameters(structure)]


# -- operators ---------------------------------------------------------------------------------------------------------


def compute_update(
    structure: Structure, weight: torch.Tensor, gradient: torch.Tensor, slots: Slots, hyper_parameters: HyperParameters
) -> Updated:
    """Return the new value of `weight` and of its `slots` in single precision; nothing is written to.

    `gradient` is in single precision, unscaled and clipped. Storing the results rounds them to the types of weight and
    slots.
    """
    # a compiler fuses the casts into its one pass over memory
    single_slots = {name: slot.float() for name, slot in slots.items()}
    return _UPDATES[structure["family"]](structure, weight.float(), gradient, single_slots, hyper_parameters)


# The expressions are those of `updates`, reordered so that divisions by numbers become products. They round a little
# differently, which `tuning.parity` allows for.
def _apply_sgd(
    structure: Structure, weight: torch.Tensor, gradient: torch.Tensor, slots: Slots, h: HyperParameters
) -> Updated:
    if structure["weight_decay"]:
        gradient = gradient + weight * h["weight_decay"]
    if not structure["momentum"]:
        return weight + gradient * h["rate"], {}
    velocity = slots["Accl1"] * h["momentum"] + gradient * h["gain"]
    direction = gradient + velocity * h["momentum"] if structure["nesterov"] else velocity
    return weight + direction * h["rate"], {"Accl1": velocity}


def _update_moments(gradient: torch.Tensor, slots: Slots, h: HyperParameters) -> Dict[str, torch.Tensor]:
    first, second = slots["Accl1"], slots["Accl2"]
    return {
        "Accl1": first + (gradient - first) * h["gain1"],
        "Accl2": second * h["beta2"] + gradient * gradient * h["gain2"],
    }


def _apply_adam(
    structure: Structure, weight: torch.Tensor, gradient: torch.Tensor, slots: Slots, h: HyperParameters
) -> Updated:
    if structure["weight_decay"]:
        if structure["family"] == "ADAMW":
            weight = weight * h["keep"]
        else:
            gradient = gradient + weight * h["weight_decay"]
    moments = _update_moments(gradient, slots, h)
    denominator = moments["Accl2"].sqrt() * h["inverse_root"] + h["eps"]
    return weight + moments["Accl1"] * h["rate"] / denominator, moments


def _apply_rmsprop(
    structure: Structure, weight: torch.Tensor, gradient: torch.Tensor, slots: Slots, h: HyperParameters
) -> Updated:
    if structure["weight_decay"]:
        gradient = gradient + weight * h["weight_decay"]
    square = slots["Accl1"] * h["alpha"] + gradient * gradient * h["gain"]
    new = {"Accl1": square}
    variance = square
    if structure["centered"]:
        mean = slots["Accl3"] + (gradient - slots["Accl3"]) * h["gain"]
        new["Accl3"] = mean
        variance = square - mean * mean
    if structure["use_tf_variant"]:
        direction = gradient * h["learning_rate"] / (variance + h["eps"]).sqrt()
    else:
        direction = gradient / (variance.sqrt() + h["eps"])
    if structure["momentum"]:
        new["Accl2"] = direction = slots["Accl2"] * h["momentum"] + direction
    if not structure["use_tf_variant"]:
        direction = direction * h["learning_rate"]
    return weight - direction, new


def _apply_lamb(
    _structure: Structure, weight: torch.Tensor, gradient: torch.Tensor, slots: Slots, h: HyperParameters
) -> Updated:
    moments = _update_moments(gradient, slots, h)
    denominator = moments["Accl2"].sqrt() * h["inverse_root"] + h["eps"]
    direction = moments["Accl1"] * h["inverse_correction"] / denominator + weight * h["weight_decay"]
    weight_norm = torch.minimum(torch.linalg.vector_norm(weight), h["max_weight_norm"])
    direction_norm = torch.linalg.vector_norm(direction)
    are_both = (weight_norm > 0) & (direction_norm > 0)
    trust = torch.where(are_both, weight_norm / direction_norm, 1.0)
    return weight + direction * (trust * h["rate"]), moments


_UPDATES: Mapping[str, Callable[..., Updated]] = {
    "SGD": _apply_sgd,
    "ADAM": _apply_adam,
    "ADAMW": _apply_adam,
    "RMSPROP": _apply_rmsprop,
    "LAMB": _apply_lamb,
}
