"""The likely cause of a difference in words, from what the two sides' settings and operators say."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.diagnostics import list_names
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.setting_differences import SettingDifference
from porting.verify.fault_location.step_trace import TensorForm, ValueRecord
from porting.verify.fault_location.trace_comparison import Apart, GradientFault, ValueFault
from porting.verify.fault_location.traced_steps import LOSS, ROOT

__all__ = ["explain_gradient", "explain_value", "name_module", "say_optimizer_differences", "select_differences"]

_RANDOM = frozenset(
    ["aten.bernoulli_", "aten.bernoulli", "aten.rand", "aten.rand_like", "aten.randn", "aten.randn_like"]
)
_MOST_LISTED = 4


def name_module(path: str, evidence: Evidence) -> str:
    """Return the name by which a user knows the module at `path`: the class of the model or the loss for those."""
    if path == ROOT:
        return type(evidence.plain.model).__name__
    if path == LOSS:
        loss = evidence.plain.loss
        return type(loss).__name__ if isinstance(loss, nn.Module) else str(getattr(loss, "__name__", "loss"))
    return path


def find_module(path: str, model: nn.Module) -> Optional[nn.Module]:
    """Return the module of `model` at `path`."""
    return model if path == ROOT else dict(model.named_modules()).get(path)


def select_differences(path: str, evidence: Evidence) -> List[SettingDifference]:
    """Return what differs in the settings of the module at `path`; where nothing does, of those around it."""
    if path in (LOSS, ""):
        return evidence.loss
    found = evidence.modules
    at = "" if path == ROOT else path
    while True:
        own = [difference for difference in found if difference.owner == at]
        if own or not at:
            return own
        at = at.rpartition(".")[0]


def _list_differences(differences: Sequence[SettingDifference]) -> str:
    words = [str(difference) for difference in differences[:_MOST_LISTED]]
    if len(differences) > _MOST_LISTED:
        words.append(f"{len(differences) - _MOST_LISTED} more")
    return "; ".join(words)


def _say_owner(path: str, evidence: Evidence) -> str:
    module = find_module(path, evidence.plain.model)
    kind = f" ({type(module).__name__})" if module is not None and path != ROOT else ""
    return f"`{name_module(path, evidence)}`{kind}"


# -- values ------------------------------------------------------------------------------------------------------------


def explain_value(fault: ValueFault, path: str, evidence: Evidence) -> str:
    """Say why the first differing operator, in the module at `path`, differs."""
    differences = select_differences(path, evidence)
    words = []
    if differences:
        owner = "the loss" if path in (LOSS, "") else _say_owner(differences[0].owner or ROOT, evidence)
        words.append(f"{owner} has other settings: {_list_differences(differences)}")
    structure = _say_structure(fault)
    if structure and (not differences or any(item.name in ("forward", "loss") for item in differences)):
        words.append(structure)
    if not words:
        words.append(_explain_equal_settings(fault, path, evidence))
    words += _say_mode(path, evidence)
    return "; ".join(words)


def _say_structure(fault: ValueFault) -> str:
    one, other = fault.plain, fault.ported
    if one is None and other is not None:
        return f"only the port runs `{other.name}` here{_say_numbers(other)}"
    if one is not None and other is None:
        return f"only plain PyTorch runs `{one.name}` here{_say_numbers(one)}"
    if one is not None and other is not None:
        if one.name != other.name:
            return f"the port runs `{other.name}` where plain PyTorch runs `{one.name}`"
        changed = _compare_arguments(one, other)
        if changed is not None:
            return f"`{one.name}` gets {changed[1]} in the port and {changed[0]} in plain PyTorch"
    return ""


def _say_numbers(value: ValueRecord) -> str:
    numbers = [str(item) for item in value.args if isinstance(item, (int, float)) and not isinstance(item, bool)]
    return f", with {', '.join(numbers)}" if numbers else ""


def _compare_arguments(one: ValueRecord, other: ValueRecord) -> Optional[Tuple[str, str]]:
    pairs = [*zip(one.args, other.args), *((one.kwargs[key], other.kwargs.get(key)) for key in one.kwargs)]
    for before, after in pairs:
        if isinstance(before, TensorForm) and isinstance(after, TensorForm):
            if before.shape != after.shape:
                return f"a tensor of {list(before.shape)}", f"one of {list(after.shape)}"
        elif before != after and not (isinstance(before, torch.dtype) or isinstance(after, torch.dtype)):
            return f"`{before}`", f"`{after}`"
    return None


def _explain_equal_settings(fault: ValueFault, path: str, evidence: Evidence) -> str:
    weights = _find_other_weights(path, evidence)
    if weights:
        return f"{list_names(weights, most=_MOST_LISTED)} had another value in the port before the step"
    name = fault.plain.name if fault.plain is not None else ""
    if name in _RANDOM:
        return "the port draws other random numbers: the settings agree, and so do the values that go in"
    return (
        f"the settings of {_say_owner(path, evidence)} agree and so does what goes in, but `{name}` gives other "
        f"values: {_say_apart(fault.apart)}"
    )


def _say_apart(apart: Apart) -> str:
    off = abs(apart.factor - 1) * apart.scale
    if math.isclose(off, apart.distance, rel_tol=1e-2):
        return f"{apart.factor:.5g} times plain PyTorch's"
    return f"a distance of {apart.distance:.1e} for values of {apart.scale:.1e}, rounding explains {apart.band:.1e}"


def _find_other_weights(path: str, evidence: Evidence) -> List[str]:
    prefix = "" if path == ROOT else f"{path}."
    found = []
    for kind in ("parameters", "buffers"):
        plain, ported = getattr(evidence.step.before, kind), getattr(evidence.state_before, kind)
        for name, value in plain.items():
            other = ported.get(name)
            if name.startswith(prefix) and other is not None and value.is_floating_point():
                if not torch.allclose(value.double(), other.double(), rtol=1e-3, atol=1e-7):
                    found.append(name)
    return found


def _say_mode(path: str, evidence: Evidence) -> List[str]:
    differences = [item for item in evidence.modules if item.name == "training"]
    here = [item for item in differences if item.owner == ("" if path == ROOT else path)]
    if not here:
        return []
    word = "train" if here[0].ported else "eval"
    return [f"it is in {word} mode in the port alone"]


# -- gradients ---------------------------------------------------------------------------------------------------------


def explain_gradient(fault: GradientFault, path: str, evidence: Evidence) -> str:
    """Say why the first differing gradient, at an operator of the module at `path`, differs."""
    words = []
    name = fault.plain.node if fault.plain is not None else "the backward pass"
    if fault.is_cut:
        words.append(f"the port's backward pass does not come to `{name}` of {_say_owner(path, evidence)}")
    elif fault.parameters:
        parameters = list_names(fault.parameters, most=_MOST_LISTED)
        words.append(f"`{name}` of {_say_owner(path, evidence)} makes another gradient of {parameters}")
    else:
        words.append(f"the gradient at `{name}` of {_say_owner(path, evidence)} is another: {_say_apart(fault.apart)}")
    if fault.extra is not None:
        place = f" at {fault.extra.origin.place}" if fault.extra.origin.place is not None else ""
        effect = ", which cuts the graph: no gradient goes through it" if fault.extra.name == "aten.detach" else ""
        words.append(f"only the port runs `{fault.extra.name}`{place}{effect}")
    differences = select_differences(path, evidence)
    if differences:
        words.append(_list_differences(differences))
    return "; ".join(words)


# -- updates -----------------------------------------------------------------------------------------------------------

_MEANINGS = {
    "lr": "learning rates differ",
    "weight_decay": "weight decay differs",
    "momentum": "momentum differs",
    "dampening": "dampening of the momentum differs",
    "nesterov": "one side uses Nesterov's momentum",
    "eps": "the optimizer's `eps` differs",
    "class": "the optimizers are of other kinds",
    "parameter": "the optimizers have other parameters",
    "max_grad_norm": "gradients are clipped on one side only, or to another norm",
}


def say_optimizer_differences(differences: Sequence[SettingDifference], parameters: Mapping[str, torch.Tensor]) -> str:
    """Say what differs between the optimizers, and for which of the `parameters`."""
    words = []
    for difference in differences[:_MOST_LISTED]:
        owners: Any = difference.owner.split(", ") if difference.owner else []
        where = f" for {list_names(owners, most=_MOST_LISTED)}" if owners else ""
        if owners and all(name.rpartition(".")[2] == "bias" for name in owners):
            where += ", biases alone"
        elif owners and all(name in parameters and parameters[name].dim() <= 1 for name in owners):
            where += ", biases and weights of norms alone"
        meaning = _MEANINGS.get(difference.name, "the optimizers' settings differ")
        words.append(f"{meaning}{where}: {difference}")
    return "; ".join(words)
