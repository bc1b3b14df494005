"""Compare the settings of optimizers, parameter by parameter, because rounding can hide what they do.

Records keep them, and the location of a fault names those that differ.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import torch

from porting.diagnostics import join_names
from porting.verify.certificate import Measured

__all__ = [
    "Settings",
    "are_same_settings",
    "compare_settings",
    "group_setting_differences",
    "iter_setting_differences",
    "read_setting",
    "read_settings",
    "say_setting",
]

Settings = Dict[str, Dict[str, Any]]
"""The settings that each parameter is trained with, by its name and theirs."""

# what moves a weight; others choose between implementations
_NAMES = "lr weight_decay momentum dampening nesterov betas eps alpha centered amsgrad maximize".split()
# a device holds them in float32
_RELATIVE = 1e-6
_CLASS, _CLIPPING = "class", "max_grad_norm"
_TRAINED = "not trained", "trained"


def read_settings(
    optimizer: torch.optim.Optimizer, named: Iterable[Tuple[str, torch.Tensor]], max_grad_norm: Optional[float] = None
) -> Settings:
    """Return the settings of those of the `named` parameters that an optimizer trains.

    `max_grad_norm` is the norm that gradients are clipped to; by default it is the optimizer's own, as PopTorch has it.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> read_settings(torch.optim.SGD([weight], lr=0.5), [("weight", weight)])["weight"]["lr"]
    0.5
    """
    norm = getattr(optimizer, _CLIPPING, None) if max_grad_norm is None else max_grad_norm
    common = {_CLASS: _name_class(optimizer), _CLIPPING: math.inf if norm is None else float(norm)}
    names, found = {id(parameter): name for name, parameter in named}, {}
    for group in optimizer.param_groups:
        settings = {name: read_setting(group[name]) for name in _NAMES if name in group}
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is not None and parameter.requires_grad:
                found[name] = {**settings, **common}
    return found


def iter_setting_differences(plain: Mapping[str, Any], ported: Mapping[str, Any]) -> Iterator[Tuple[str, Any, Any]]:
    """List the settings that two optimizers both have and have another value of: name, plain PyTorch's, the port's."""
    kinds = plain.get(_CLASS), ported.get(_CLASS)
    is_without_decay = not (plain.get("weight_decay") or ported.get("weight_decay"))
    if kinds[0] != kinds[1] and not (is_without_decay and set(kinds) == {"Adam", "AdamW"}):
        yield _CLASS, *kinds
    for name, one in plain.items():
        if name != _CLASS and name in ported and not are_same_settings(one, ported[name]):
            yield name, one, ported[name]


def group_setting_differences(plain: Settings, ported: Settings) -> Dict[Tuple[str, Any, Any], List[str]]:
    """Return the parameters that have the same difference: the setting's name, plain PyTorch's value, the port's.

    One that only one side trains differs in "parameter".
    """
    found: Dict[Tuple[str, Any, Any], List[str]] = {}
    for name in {**plain, **ported}:
        differences: Iterable[Tuple[str, Any, Any]]
        differences = [("parameter", _TRAINED[name in plain], _TRAINED[name in ported])]
        if name in plain and name in ported:
            differences = iter_setting_differences(plain[name], ported[name])
        for difference in differences:
            found.setdefault(difference, []).append(name)
    return found


def compare_settings(plain: Settings, ported: Settings, step: int) -> Iterator[Measured]:
    """Compare what both optimizers trained each parameter with in a step; what all have alike is told once."""
    found = group_setting_differences(plain, ported)
    for (setting, ours, theirs), owners in found.items():
        of = "" if len(owners) == len({**plain, **ported}) else f" of {join_names(owners, most=3)}"
        text = f"{say_setting(theirs)} in the port, {say_setting(ours)} in plain PyTorch"
        if setting == "parameter":
            text = f"only {'the port' if theirs == _TRAINED[True] else 'plain PyTorch'} trains it"
        yield Measured("setting", f"{setting}{of}", step, math.inf, 0.0, 0.0, text)
    if not found and plain:
        yield Measured("setting", "all", step, 0.0, 1.0, 0.0)


def _name_class(optimizer: torch.optim.Optimizer) -> str:
    """Name the optimizer of torch that one is or is derived from; its own name where there is none."""
    for kind in type(optimizer).__mro__:
        if kind.__module__.startswith("torch.optim") and kind is not torch.optim.Optimizer:
            return kind.__name__
    return type(optimizer).__name__


def read_setting(value: object) -> Any:
    """Return a setting as numbers, a truth or a tuple of numbers; what is neither stays as it is."""
    if isinstance(value, (tuple, list)):
        return tuple(float(item) for item in value)
    if isinstance(value, bool) or not isinstance(value, (int, float, torch.Tensor)):
        return value
    return float(value)


def are_same_settings(one: object, other: object) -> bool:
    """Tell whether two values of a setting are one, but for the digits that a device does not hold.

    >>> are_same_settings((0.9, 0.999), (0.9, 0.9990000001)), are_same_settings(1, "1")
    (True, False)
    """
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.equal(one.detach().cpu(), other.detach().cpu())
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(are_same_settings, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_RELATIVE) or (one != one and other != other)
    return type(one) is not torch.Tensor is not type(other) and bool(one == other)


def say_setting(value: object) -> str:
    """Say a setting in few words.

    >>> say_setting((0.9, 0.999)), say_setting(1e-8)
    ('(0.9, 0.999)', '1e-08')
    """
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, torch.Tensor):
        return str(value.tolist()) if value.numel() <= 8 else f"a tensor of {list(value.shape)}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
