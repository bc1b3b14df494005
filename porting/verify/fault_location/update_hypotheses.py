"""Explanations of another update of weights where the optimizers' settings agree, from the numbers themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import torch

from porting.diagnostics import list_names
from porting.verify.fault_location.loss_hypotheses import say_factor

__all__ = ["UpdateCase", "explain_update"]

Tensors = Mapping[str, torch.Tensor]

_TOLERANCE = 5e-3


@dataclass(frozen=True)
class UpdateCase:
    """A step's update of the parameters that differ (`names`), and what it is made of: weights, gradients, state.

    `optimizer` is the plain one, `group_names` the parameters of its groups, `slots` its state before the step.
    """

    names: Sequence[str]
    plain: Tensors
    ported: Tensors
    weights: Tensors
    gradients: Tensors
    slots: Mapping[str, Tensors]
    optimizer: torch.optim.Optimizer
    group_names: Sequence[Sequence[str]]


def explain_update(case: UpdateCase) -> Optional[str]:
    """Return what makes of the plain updates the port's, in words; None where nothing that was tried does."""
    still = [name for name in case.names if not bool(case.ported[name].any())]
    if still and len(still) == len(case.names):
        begins = "momentum" in case.optimizer.defaults and not any(case.slots.values())
        late = ": in a first step the momentum of the step before is zero" if begins else ""
        return f"the port does not update {_list_parameters(still, case)}{late}"
    if _is_momentum_late(case):
        return "the update is made with the momentum of the step before: momentum is off by one step"
    found = _explain_candidates(case)
    if found is not None:
        return found
    return _explain_factor(case) or _explain_direction(case)


def _list_parameters(names: Sequence[str], case: UpdateCase) -> str:
    if len(names) == len(case.plain):
        return "any parameter" if len(names) > 1 else f"`{names[0]}`"
    return list_names(names, most=4)


def _explain_factor(case: UpdateCase) -> Optional[str]:
    plain, ported = _join_tensors(case.plain, case.names), _join_tensors(case.ported, case.names)
    if not bool(plain.any()):
        return f"plain PyTorch does not update {_list_parameters(case.names, case)}, the port does"
    factor = float(plain @ ported / (plain @ plain))
    rest = float((ported - factor * plain).norm())
    # it has to explain most of the difference
    if rest > min(_TOLERANCE * float(ported.norm()), 0.05 * float((ported - plain).norm())):
        return None
    everything = (
        "every update" if len(case.names) == len(case.plain) else f"the update of {_list_parameters(case.names, case)}"
    )
    sign = ": it goes the other way" if factor < 0 else ", as another learning rate would make it"
    return f"{everything} is {say_factor(factor, {})}{sign}"


def _explain_direction(case: UpdateCase) -> Optional[str]:
    """Return what the difference of the updates is a multiple of: the weights, the momentum, the gradients."""
    difference = _join_tensors(case.ported, case.names) - _join_tensors(case.plain, case.names)
    rate = _find_rate(case)
    momentum = _list_momentum(case)
    for what, tensors in (("weights", case.weights), ("momentum", momentum), ("gradients", case.gradients)):
        if any(name not in tensors for name in case.names):
            continue
        direction = _join_tensors(tensors, case.names)
        size = float(direction @ direction)
        share = float(direction @ difference) / size if size else 0.0
        if not share or float((difference - share * direction).norm()) > 0.05 * float(difference.norm()):
            continue
        return _say_direction(what, -share / rate, case)
    return None


def _say_direction(what: str, share: float, case: UpdateCase) -> str:
    names = _list_parameters(case.names, case)
    if what == "weights":
        vectors = all(case.weights[name].dim() <= 1 for name in case.names)
        kind = ", biases and norms alone" if vectors and len(case.names) < len(case.plain) else ""
        more = "more" if share > 0 else "less"
        return f"a weight decay of {abs(share):.3g} {more} than in plain PyTorch acts on {names}{kind}"
    if what == "momentum":
        return f"the momentum of {names} counts by {share:+.3g} more than in plain PyTorch"
    return f"the gradient of {names} counts by {share:+.3g} more than in plain PyTorch"


def _join_tensors(tensors: Tensors, names: Sequence[str]) -> torch.Tensor:
    return torch.cat([tensors[name].double().flatten() for name in names])


def _find_rate(case: UpdateCase) -> float:
    return next((float(group["lr"]) for group in case.optimizer.param_groups if group["lr"]), math.nan)


def _list_momentum(case: UpdateCase) -> Dict[str, torch.Tensor]:
    return {
        name: own[slot] for name, own in case.slots.items() for slot in ("momentum_buffer", "exp_avg") if slot in own
    }


def _is_momentum_late(case: UpdateCase) -> bool:
    momentum = {name: own["momentum_buffer"] for name, own in case.slots.items() if "momentum_buffer" in own}
    if any(name not in momentum for name in case.names):
        return False
    expected, ported = -_find_rate(case) * _join_tensors(momentum, case.names), _join_tensors(case.ported, case.names)
    return float((ported - expected).norm()) <= _TOLERANCE * float(ported.norm())


# -- other settings, tried out -----------------------------------------------------------------------------------------


def _explain_candidates(case: UpdateCase) -> Optional[str]:
    wanted = _join_tensors(case.ported, case.names)
    best: Tuple[float, str] = (math.inf, "")
    for text, changes, slots in _list_candidates(case):
        found = _try_update(case, changes, slots)
        if found is not None:
            best = min(best, (float((_join_tensors(found, case.names) - wanted).norm()), text))
    # it has to explain most of the difference
    difference = float((_join_tensors(case.plain, case.names) - wanted).norm())
    return best[1] if best[0] <= min(_TOLERANCE * float(wanted.norm()), 0.05 * difference) else None


_Settings = Mapping[str, Any]

_CHANGES: Tuple[Tuple[str, _Settings], ...] = (
    ("without momentum", {"momentum": 0.0, "nesterov": False}),
    ("without weight decay", {"weight_decay": 0.0}),
    ("without dampening", {"dampening": 0.0}),
    *((f"with momentum {value}", {"momentum": value}) for value in (0.5, 0.8, 0.9, 0.95, 0.99)),
    *((f"with eps {value:g}", {"eps": value}) for value in (1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)),
    *((f"with weight decay {value:g}", {"weight_decay": value}) for value in (1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.1)),
)
_BETAS = (0.0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


def _list_candidates(case: UpdateCase) -> Iterator[Tuple[str, _Settings, Mapping[str, Tensors]]]:
    settings = case.optimizer.param_groups[0]
    prefix = "the update is that of plain PyTorch's settings"
    for text, changes in _CHANGES:
        if all(name in settings for name in changes):
            yield f"{prefix} {text}", changes, case.slots
    if "betas" in settings:
        first, second = settings["betas"]
        for value in _BETAS:
            yield f"{prefix} with betas[0] {value}", {"betas": (value, second)}, case.slots
            yield f"{prefix} with betas[1] {value}", {"betas": (first, value)}, case.slots
    if settings.get("momentum") and "nesterov" in settings:
        word = "without" if settings["nesterov"] else "with"
        yield f"{prefix} {word} Nesterov's momentum", {"nesterov": not settings["nesterov"]}, case.slots
    if any(own for own in case.slots.values()):
        yield "the update is that of an optimizer whose state (momentum) is lost: as in a first step", {}, {}
    for shift, word in ((1, "ahead"), (-1, "behind")):
        if any("step" in own for own in case.slots.values()):
            steps = {name: _shift_step(own, shift) for name, own in case.slots.items()}
            words = f"the optimizer's count of steps is one {word}: its bias correction is that of another step"
            yield words, {}, steps


def _shift_step(slots: Tensors, shift: int) -> Dict[str, torch.Tensor]:
    return {slot: value + shift if slot == "step" else value for slot, value in slots.items()}


def _try_update(case: UpdateCase, changes: _Settings, slots: Mapping[str, Tensors]) -> Optional[Tensors]:
    """Return the updates that torch's own optimizer makes with other settings or state; None where it cannot."""
    parameters = {name: torch.nn.Parameter(weight.detach().clone()) for name, weight in case.weights.items()}
    groups = []
    for group, names in zip(case.optimizer.param_groups, case.group_names):
        own = {key: value for key, value in group.items() if key != "params"}
        groups.append({**own, **changes, "params": [parameters[name] for name in names if name in parameters]})
    kind: Any = type(case.optimizer)
    try:
        optimizer = kind(groups, lr=_find_rate(case))
        for name, parameter in parameters.items():
            gradient = case.gradients.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter).clone()
            optimizer.state[parameter] = {slot: value.clone() for slot, value in slots.get(name, {}).items()}
        optimizer.step()
    except (KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError):
        return None
    return {name: parameter.detach() - case.weights[name] for name, parameter in parameters.items()}
