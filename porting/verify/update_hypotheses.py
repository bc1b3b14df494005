"""Explanations of another update of weights where the optimizers' settings agree, from the numbers themselves."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from porting.diagnostics import list_names
from porting.engines.calls.group_settings import GroupSettings
from porting.engines.update.updates import apply_update
from porting.verify.loss_hypotheses import say_factor

__all__ = ["UpdateCase", "explain_update"]

Tensors = Mapping[str, torch.Tensor]

_TOLERANCE = 5e-3


@dataclass(frozen=True)
class UpdateCase:
    """A step's update of the parameters that differ (`names`), and what it is made of: weights, gradients, state.

    `slots` is the device's state before the step, by its own names; `groups` and `group_names` are the plain settings.
    """

    names: Sequence[str]
    plain: Tensors
    ported: Tensors
    weights: Tensors
    gradients: Tensors
    slots: Mapping[str, Tensors]
    groups: Sequence[GroupSettings]
    group_names: Sequence[Sequence[str]]


def explain_update(case: UpdateCase) -> Optional[str]:
    """Return what makes of the plain updates the port's, in words; None where nothing that was tried does."""
    still = [name for name in case.names if not bool(case.ported[name].any())]
    if still and len(still) == len(case.names):
        return f"the port does not update {_name(still, case)}"
    found = _explain_candidates(case)
    if found is not None:
        return found
    return _explain_factor(case) or _explain_direction(case)


def _name(names: Sequence[str], case: UpdateCase) -> str:
    if len(names) == len(case.plain):
        return "any parameter" if len(names) > 1 else f"`{names[0]}`"
    return list_names(names, most=4)


def _explain_factor(case: UpdateCase) -> Optional[str]:
    plain, ported = _join(case.plain, case.names), _join(case.ported, case.names)
    if not bool(plain.any()):
        return f"plain PyTorch does not update {_name(case.names, case)}, the port does"
    factor = float(plain @ ported / (plain @ plain))
    if float((ported - factor * plain).norm()) > _TOLERANCE * float(ported.norm()):
        return None
    everything = "every update" if len(case.names) == len(case.plain) else f"the update of {_name(case.names, case)}"
    sign = ": it goes the other way" if factor < 0 else ", as another learning rate would make it"
    return f"{everything} is {say_factor(factor, {})}{sign}"


def _explain_direction(case: UpdateCase) -> Optional[str]:
    """Return what the difference of the updates is a multiple of: the weights, the momentum, the gradients."""
    difference = _join(case.ported, case.names) - _join(case.plain, case.names)
    rate = next((group.learning_rate for group in case.groups if group.learning_rate), math.nan)
    momentum = {name: own["Accl1"] for name, own in case.slots.items() if "Accl1" in own}
    for what, tensors in (("weights", case.weights), ("momentum", momentum), ("gradients", case.gradients)):
        if any(name not in tensors for name in case.names):
            continue
        direction = _join(tensors, case.names)
        size = float(direction @ direction)
        share = float(direction @ difference) / size if size else 0.0
        if not share or float((difference - share * direction).norm()) > 0.05 * float(difference.norm()):
            continue
        return _say_direction(what, -share / rate, case)
    return None


def _say_direction(what: str, share: float, case: UpdateCase) -> str:
    names = _name(case.names, case)
    if what == "weights":
        vectors = all(case.weights[name].dim() <= 1 for name in case.names)
        kind = ", biases and norms alone" if vectors and len(case.names) < len(case.plain) else ""
        more = "more" if share > 0 else "less"
        return f"a weight decay of {abs(share):.3g} {more} than in plain PyTorch acts on {names}{kind}"
    if what == "momentum":
        return f"the momentum of {names} counts by {share:+.3g} more than in plain PyTorch"
    return f"the gradient of {names} counts by {share:+.3g} more than in plain PyTorch"


def _join(tensors: Tensors, names: Sequence[str]) -> torch.Tensor:
    return torch.cat([tensors[name].double().flatten() for name in names])


# -- other settings, tried out -----------------------------------------------------------------------------------------


def _explain_candidates(case: UpdateCase) -> Optional[str]:
    wanted = _join(case.ported, case.names)
    best: Tuple[float, str] = (math.inf, "")
    for text, groups, slots in _list_candidates(case):
        found = _try_update(case, groups, slots)
        if found is not None:
            error = float((_join(found, case.names) - wanted).norm())
            best = min(best, (error, text))
    own = _try_update(case, case.groups, case.slots)
    limit = _TOLERANCE * float(wanted.norm())
    if own is not None:  # it has to explain more than what is wanted differs by
        limit = min(limit, 0.05 * float((_join(own, case.names) - wanted).norm()))
    return best[1] if best[0] <= limit else None


_CHANGES: Tuple[Tuple[str, Mapping[str, Any]], ...] = (
    ("without momentum", {"momentum": 0.0, "nesterov": False}),
    ("without weight decay", {"weight_decay": 0.0}),
    ("without dampening", {"dampening": 0.0}),
    *((f"with momentum {value}", {"momentum": value}) for value in (0.5, 0.8, 0.9, 0.95, 0.99)),
    *((f"with betas[0] {value}", {"beta1": value}) for value in (0.0, 0.5, 0.8, 0.85, 0.9, 0.95)),
    *((f"with betas[1] {value}", {"beta2": value}) for value in (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
    *((f"with eps {value:g}", {"eps": value}) for value in (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)),
    *((f"with weight decay {value:g}", {"weight_decay": value}) for value in (1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.1)),
)

_Candidate = Tuple[str, List[GroupSettings], Mapping[str, Tensors]]


def _list_candidates(case: UpdateCase) -> Iterator[_Candidate]:
    groups = list(case.groups)
    prefix = "the update is that of plain PyTorch's settings"
    for text, changes in _CHANGES:
        changed = [dataclasses.replace(group, **dict(changes)) for group in groups]
        if changed != groups:
            yield f"{prefix} {text}", changed, case.slots
    toggled = [dataclasses.replace(group, nesterov=not group.nesterov) for group in groups]
    if any(group.momentum for group in groups):
        word = "with" if toggled[0].nesterov else "without"
        yield f"{prefix} {word} Nesterov's momentum", toggled, case.slots
    if any(own for own in case.slots.values()):
        zeros = {name: {slot: torch.zeros_like(v) for slot, v in own.items()} for name, own in case.slots.items()}
        yield "the update is that of an optimizer whose state (momentum) is lost: as in a first step", groups, zeros
    for shift, word in ((1, "ahead"), (-1, "behind")):
        steps = {name: _shift_step(own, shift) for name, own in case.slots.items()}
        if any("Step" in own for own in steps.values()):
            words = f"the optimizer's count of steps is one {word}: its bias correction is that of another step"
            yield words, groups, steps


def _shift_step(slots: Tensors, shift: int) -> Dict[str, torch.Tensor]:
    return {slot: value + shift if slot == "Step" else value for slot, value in slots.items()}


def _try_update(
    case: UpdateCase, groups: Sequence[GroupSettings], slots: Mapping[str, Tensors]
) -> Optional[Dict[str, torch.Tensor]]:
    """Return the updates that the device's arithmetic makes; None where it cannot with these settings."""
    parameters = {name: weight.detach().float().clone() for name, weight in case.weights.items()}
    for name, parameter in parameters.items():
        gradient = case.gradients.get(name)
        parameter.grad = None if gradient is None else gradient.float().clone()
    own = {name: {slot: value.clone() for slot, value in of.items()} for name, of in slots.items()}
    names = [[name for name in of_group if name in parameters] for of_group in case.group_names]
    try:
        apply_update(groups, names, parameters, own, loss_scaling=1.0)
    except (KeyError, RuntimeError, ValueError, ZeroDivisionError):
        return None
    return {name: parameters[name] - case.weights[name].float() for name in parameters}
