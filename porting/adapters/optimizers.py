"""Make the device's optimizer for a torch one, with its arithmetic, its state and the settings of each group.

`PortOptimizer` makes it, and copies settings that change later.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch
from torch import nn

from porting.adapters.backend_protocol import BackendOptimizer
from porting.adapters.optimizer_state import carry_state, name_parameters
from porting.diagnostics import Finding, OptionError, Severity, UnsupportedOptimizerError, caller_place, notify
from porting.torch_insides.optimizers import list_step_hooks

__all__ = [
    "SUPPORTED_OPTIMIZERS",
    "default_optimizer",
    "list_foreign_hooks",
    "require_same_parameters",
    "sync_hyper_parameters",
    "to_backend_optimizer",
]

SUPPORTED_OPTIMIZERS: Mapping[type, str] = {
    kind: kind.__name__ for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
}
"""torch's optimizers that have a counterpart, by exact class: in newer torch AdamW derives from Adam."""

_BACKEND_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "LAMB")

# The hyper-parameters of each kind, with the value at which a term of the update vanishes, where the counterpart has it
# by default too. What all groups have so is left to the default: the device compiles it in and keeps no momentum that
# it would never use.
_HYPER_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"lr": None, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
    "Adam": {"lr": None, "betas": None, "eps": None, "weight_decay": 0.0},
    "AdamW": {"lr": None, "betas": None, "eps": None, "weight_decay": None},
    "RMSprop": {"lr": None, "alpha": None, "eps": None, "weight_decay": 0.0, "momentum": 0.0, "centered": False},
}

_OWN_MODULES = __name__.split(".")[0] + "."

_REFUSED = {
    "amsgrad": "the device's Adam has no AMSGrad: leave `amsgrad` out",
    "maximize": "the device only minimises: negate the loss and leave `maximize` out",
}

# those without a counterpart by the one to try in their place
_NEAREST = {
    "Adam": ("Adamax", "NAdam", "RAdam", "SparseAdam"),
    "AdamW": ("Adafactor",),
    "RMSprop": ("Adadelta", "Adagrad", "Rprop"),
    "SGD": ("ASGD", "LBFGS", "Muon"),
}


def to_backend_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, *, backend: ModuleType, max_grad_norm: Optional[float] = None
) -> Any:
    """Make the optimizer of `backend` that does what `optimizer` would do to `model`.

    SGD, Adam, AdamW and RMSprop of torch.optim are converted with their state and the hyper-parameters of all parameter
    groups; hyper-parameters that have an effect can change later. An optimizer of `backend.optim` is returned as it is.
    Arguments that only choose an implementation (`foreach`, `fused`, `capturable`, `differentiable`) are dropped. With
    `max_grad_norm` the gradients of all parameters together are scaled down to that norm where it is larger, as
    `torch.nn.utils.clip_grad_norm_` does before a step.

    Raises UnsupportedOptimizerError: O001 for any other class, O002 for a hyper-parameter or hook that it lacks,
    O003 for parameters that are not `model`'s, O005 for a state that does not fit them; OptionError P002 for a norm
    that is none. Warns (O002) of dampening with momentum, which the device applies to the first step too.
    """
    clipping = _choose_clipping(max_grad_norm)
    is_the_devices = any(type(optimizer) is getattr(backend.optim, name) for name in _BACKEND_OPTIMIZERS)
    kind = "" if is_the_devices else _find_kind(optimizer)
    name_parameters(optimizer, model)
    _refuse_hooks(optimizer)
    name = type(optimizer).__name__
    if clipping and is_the_devices:
        remedy = f"give it to the optimizer itself: `{name}(..., max_grad_norm=...)`"
        raise _make_hyper_parameter_error(f"`max_grad_norm` with the device's own `{name}`", remedy)
    if clipping and kind == "RMSprop":
        remedy = "clip with SGD, Adam or AdamW, or leave `max_grad_norm` out"
        raise _make_hyper_parameter_error(f"the device's {name} does not clip gradients", remedy)
    if is_the_devices:
        return optimizer
    groups = [_check_hyper_parameters(kind, group) for group in optimizer.param_groups]
    if kind == "RMSprop":
        _require_common(groups, "centered")
    if any(group.get("dampening") for group in groups):
        _warn_of_dampening()
    vanishing = _HYPER_PARAMETERS[kind]
    passed = [name for name in vanishing if any(group[name] != vanishing[name] for group in groups)]
    defaults = _read_hyper_parameters(kind, optimizer.defaults)
    converted = getattr(backend.optim, kind)(
        [{"params": list(group["params"]), **values} for group, values in zip(optimizer.param_groups, groups)],
        **{name: defaults[name] for name in passed},
        **clipping,
    )
    carry_state(optimizer, converted, model)
    return converted


def default_optimizer(model: nn.Module, *, backend: ModuleType) -> Any:
    """Make the optimizer that PopTorch itself would take when none is given: SGD with a learning rate of 0.01."""
    return backend.optim.SGD(model.parameters(), lr=0.01)


def sync_hyper_parameters(source: torch.optim.Optimizer, target: Any, *, is_compiled: bool = True) -> bool:
    """Copy the hyper-parameters of `source` to its counterpart; True when one has changed.

    The device does not see the change before the executor's `setOptimizer(target)`. Raises UnsupportedOptimizerError:
    O005 when the groups no longer correspond, O002 for a hyper-parameter that the device does not have or that was
    compiled in as a constant.
    """
    if source is target:
        return False
    require_same_parameters(source, target.param_groups)
    kind = _find_kind(source)
    changes = [
        (ours, name, value)
        for theirs, ours in zip(source.param_groups, target.param_groups)
        for name, value in _check_hyper_parameters(kind, theirs).items()
        if ours[name] != value
    ]
    for name in sorted({name for _, name, _ in changes}):
        _let_vary(target, name, is_compiled=is_compiled)
    for group, name, value in changes:
        group[name] = value
    return bool(changes)


def require_same_parameters(optimizer: torch.optim.Optimizer, ported: Sequence[Mapping[str, Any]]) -> None:
    """Raise UnsupportedOptimizerError O005 unless the groups of `optimizer` have the parameters of those `ported`."""
    present = optimizer.param_groups
    fault = ""
    if len(present) != len(ported):
        fault = f"the optimizer has {len(present)} groups, the device's {len(ported)}"
    for index, (here, there) in enumerate(zip(present, ported)):
        held, known = ([id(parameter) for parameter in group["params"]] for group in (here, there))
        if held != known and not fault:
            fault = f"group {index} of the optimizer has other parameters than the device's: {len(held)} of them"
            fault += f", and there {len(known)}" if len(held) != len(known) else ""
    if fault:
        raise UnsupportedOptimizerError.at_caller(
            "O005",
            message=fault,
            notes="which parameters are trained is compiled in",
            help="port again, which keeps the optimizer's state: `to_ipu(model, ..., optimizer=optimizer)`",
        )


def _choose_clipping(max_grad_norm: Optional[float]) -> Dict[str, float]:
    """Return the argument of the device's optimizer that clips gradients, if they are to be clipped."""
    if max_grad_norm is None:
        return {}
    is_number = isinstance(max_grad_norm, (int, float)) and not isinstance(max_grad_norm, bool)
    if is_number and 0 < max_grad_norm < math.inf:
        return {"max_grad_norm": float(max_grad_norm)}
    raise OptionError.at_caller(
        "P002",
        message=f"`max_grad_norm` is {max_grad_norm!r}",
        help="give a positive number, or None for gradients of any size",
    )


def _find_kind(optimizer: torch.optim.Optimizer) -> str:
    """Name the counterpart's class; UnsupportedOptimizerError O001 when there is none."""
    kind = SUPPORTED_OPTIMIZERS.get(type(optimizer))
    if kind == "Adam" and _require_common(optimizer.param_groups, "decoupled_weight_decay"):
        return "AdamW"
    if kind is not None:
        return kind
    name = type(optimizer).__name__
    notes = [f"the device has {', '.join(_BACKEND_OPTIMIZERS)} (LAMB from the backend's own `optim`)"]
    base = next((known for known in SUPPORTED_OPTIMIZERS if isinstance(optimizer, known)), None)
    if not isinstance(optimizer, torch.optim.Optimizer):
        is_class = isinstance(optimizer, type)
        message = f"`optimizer` is {f'the class {optimizer.__name__}' if is_class else f'a {name}'}"
        remedy = "pass an instance: `torch.optim.SGD(model.parameters(), lr=0.1)`"
    elif base is not None:
        message = f"`{name}` is a class of its own, derived from {base.__name__}"
        remedy = f"use `torch.optim.{base.__name__}` itself"
        notes.append("the device has its own arithmetic and runs no Python code of an optimizer")
    else:
        message = f"`{name}` has no counterpart on the device"
        nearest = next((known for known, others in _NEAREST.items() if name in others), None)
        remedy = f"the nearest is `torch.optim.{nearest}`" if nearest else "use one of these"
    raise UnsupportedOptimizerError.at_caller("O001", message=message, notes=tuple(notes), help=remedy)


def _check_hyper_parameters(kind: str, group: Mapping[str, Any]) -> Dict[str, Any]:
    for name, remedy in _REFUSED.items():
        if group.get(name):
            raise _make_hyper_parameter_error(f"`{name}={group[name]!r}` has no counterpart on the device", remedy)
    return _read_hyper_parameters(kind, group)


def _read_hyper_parameters(kind: str, group: Mapping[str, Any]) -> Dict[str, Any]:
    """Read the hyper-parameters that the counterpart knows, as plain numbers."""
    values = {name: _make_plain(group[name]) for name in _HYPER_PARAMETERS[kind]}
    if "dampening" in values and not values["momentum"]:
        # torch ignores dampening without momentum; the device would scale the gradient
        values["dampening"] = 0.0
    return values


def _make_plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_make_plain(item) for item in value)
    return value if isinstance(value, bool) else float(value)


def _warn_of_dampening() -> None:
    notify(
        Finding(
            "O002",
            message="`dampening` acts on the first step too, which torch does not damp",
            place=caller_place(),
            severity=Severity.WARNING,
            notes="the first update is smaller than torch's by the factor 1 - dampening",
            help="leave `dampening` out for the same losses as with torch",
        ),
    )


def _require_common(groups: Sequence[Mapping[str, Any]], name: str) -> bool:
    values = {bool(group.get(name, False)) for group in groups}
    if len(values) > 1:
        raise _make_hyper_parameter_error(
            f"the parameter groups differ in `{name}`", f"give all groups the same `{name}`"
        )
    return values.pop() if values else False


def list_foreign_hooks(tables: Sequence[Mapping[Any, Any]]) -> List[Any]:
    """Return the step hooks in `tables` but for that with which a ported model watches its optimizer."""
    hooks = [hook for table in tables for hook in table.values()]
    return [hook for hook in hooks if not str(getattr(hook, "__module__", "")).startswith(_OWN_MODULES)]


def _refuse_hooks(optimizer: torch.optim.Optimizer) -> None:
    # those of all optimizers may be meant for others
    if list_foreign_hooks(list_step_hooks(optimizer)[:2]):
        raise _make_hyper_parameter_error(
            "the optimizer has step hooks, which the device would not run",
            "remove the hooks; clipping by norm is `to_ipu(..., max_grad_norm=...)`",
        )


def _let_vary(target: BackendOptimizer, name: str, *, is_compiled: bool) -> None:
    """Let the device take `name` from now on as a number that can change; constants are compiled in."""
    if name in ("nesterov", "centered"):
        raise _make_hyper_parameter_error(f"`{name}` cannot change once the model is ported", "set it before")
    attributes = getattr(target, "variable_attrs", None)
    if attributes is None or not attributes.isConstant(name):
        return
    if is_compiled:
        raise _make_hyper_parameter_error(
            f"`{name}` changes, but the compiled program has it as a constant",
            f"set a `{name}` that has an effect, or make the scheduler that changes it, before the model is compiled",
        )
    attributes.markAsVariable(name)


def _make_hyper_parameter_error(message: str, remedy: str) -> UnsupportedOptimizerError:
    return UnsupportedOptimizerError.at_caller("O002", message=message, help=remedy)
