"""Read an optimizer's settings in the device's terms: its type, and each setting's value and whether it may change.

`DeviceOptimizer` uses it.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set, Tuple, Type

import torch

from porting.engines.calls.group_settings import OptimizerKind, find_kind
from porting.simulator import optim
from porting.simulator._logging import logger
from porting.simulator._options_impl import require
from porting.simulator.enums import MeanReductionStrategy
from porting.simulator.options import Options

__all__ = [
    "OptimizerAttrTracker",
    "convertOptimizerToDict",
    "describe_settings",
    "make_device_name",
]


# PopTorch's name, which its dictionaries and logs show; pickle goes by the qualified name, which stays
_OptimizerType = OptimizerKind
_OptimizerType.__name__ = "_OptimizerType"


class OptimizerAttrTracker:
    """Remembers which names an executor's first optimizer had, and logs others that appear later, each once."""

    def __init__(self, options: Options) -> None:
        self._log_unexpected = logger.debug if options._relax_optimizer_checks else logger.warning
        self._known: Dict[str, Set[str]] = {}
        self._logged: Set[str] = set()

    def check(self, optimizer: torch.optim.Optimizer, type_name: str) -> None:
        """Record the names of the first optimizer; log those of a later one that were never seen."""
        is_first = not self._known
        found = [("default group variable", set(optimizer.defaults))]
        found += [("optimizer attribute", set(optimizer.__dict__) - _NOT_ATTRIBUTES)]
        found += [(f"group {i} attribute", set(group) - {"params"}) for i, group in enumerate(optimizer.param_groups)]
        for where, names in found:
            # what one group had is known for all of them
            kind = "group" if where.startswith("group") else where
            if is_first:
                self._known.setdefault(kind, set()).update(names, _POPTORCH_NAMES)
                continue
            unexpected = sorted(names - self._known[kind])
            if unexpected:
                message = f"Ignoring unexpected {where} in {type_name} optimizer: {unexpected}"
                self.log_once(message, self._log_unexpected)

    def log_once(self, message: str, log: Callable[[str], None] = logger.warning) -> None:
        """Log a message unless this tracker did so before."""
        if message not in self._logged:
            self._logged.add(message)
            log(message)


def convertOptimizerToDict(
    optimizer: torch.optim.Optimizer, attr_tracker: OptimizerAttrTracker, options: Options, is_compiled: bool
) -> Dict[str, Any]:
    """Return the settings that the device gets: type, settings of all groups, defaults, and those of each group.

    A setting of a group is a pair of value and whether it is constant. Raises `AssertionError` for an optimizer or a
    value that the device does not support and `ValueError` for ``amsgrad``. An optimizer with half accumulators
    switches ``options`` to the running mean, which is a `ValueError` once the model is compiled. Names and settings
    that the device ignores are logged once per ``attr_tracker``.
    """
    cls = type(optimizer)
    # By name rather than by base: torch's AdamW is derived from torch's Adam.
    if not (cls in _PLAIN_CLASSES or torch.optim.Optimizer in cls.__bases__ or optim.Optimizer in cls.__bases__):
        attr_tracker.log_once(
            f"Optimizer `{cls.__name__}` subclassed from classes in poptorch.optim or torch.optim are unlikely to "
            "behave as intended. Poptorch does not run Python optimizer code directly; it uses the settings of the "
            "optimizer it is derived from and the device's own implementation."
        )
    kind = find_kind(optimizer)
    attr_tracker.check(optimizer, kind.name)
    for name, consequence in _IGNORED_SETTINGS.items():
        if any(group.get(name) for group in optimizer.param_groups):
            attr_tracker.log_once(f"Ignoring {name}=True in {kind.name} optimizer: {consequence}")
    is_loss_scaling_automatic = bool(options._Popart.options.get("automaticLossScalingSettings.enabled"))
    if is_loss_scaling_automatic and isinstance(optimizer, optim.Optimizer):
        # the device adapts it, so it can be no constant of the executable
        optimizer.variable_attrs.markAsVariable("loss_scaling")

    settings: Dict[str, Any] = {"optimizer_type": kind, **_read_optimizer_settings(optimizer, kind)}
    settings["defaults"] = _read_group_settings(optimizer, kind, optimizer.defaults)
    loss_scaling = _check_number("loss_scaling", getattr(optimizer, "loss_scaling", 1.0))
    is_constant = not is_loss_scaling_automatic and _is_constant(optimizer, kind, "loss_scaling", loss_scaling)
    settings["defaults"]["lossScaling"] = (loss_scaling, is_constant)
    settings["groups"] = [_read_group_settings(optimizer, kind, group) for group in optimizer.param_groups]
    if settings.get("accumType") and kind != OptimizerKind.SGD1:
        _switch_to_running_mean(options, is_compiled)
    return settings


def _read_optimizer_settings(optimizer: torch.optim.Optimizer, kind: OptimizerKind) -> Dict[str, Any]:
    """Return the settings of all groups; types become whether they are half."""
    settings: Dict[str, Any] = {}
    for name in _CLASSES[kind]._child_only:
        if name.endswith("accum_type"):
            settings[make_device_name(name)] = getattr(optimizer, name, torch.float32) == torch.float16
        elif name == "use_tf_variant":
            settings[make_device_name(name)] = bool(getattr(optimizer, name, False))
        elif name == "max_grad_norm":
            settings[make_device_name(name)] = _check_number(name, getattr(optimizer, name, math.inf))
    return settings


def _read_group_settings(
    optimizer: torch.optim.Optimizer, kind: OptimizerKind, group: Mapping[str, Any]
) -> Dict[str, Tuple[float, bool]]:
    settings: Dict[str, Tuple[float, bool]] = {}
    for name in _CLASSES[kind]._group_vars:
        value = group.get(name, _MISSING_IN_TORCH.get(name))
        if name == "amsgrad":
            if value:
                raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
        elif name == "betas":
            is_pair = isinstance(value, tuple) and len(value) == 2
            require(is_pair, f"Expected a pair for betas but got {value!r} instead")
            is_constant = _is_constant(optimizer, kind, name, value)
            settings.update({f"beta{i}": (_check_number(name, beta), is_constant) for i, beta in enumerate(value, 1)})
        elif name != "centered":  # which is part of the kind
            number = _check_number(name, value)
            settings[make_device_name(name)] = (number, _is_constant(optimizer, kind, name, number))
    return settings


def make_device_name(name: str) -> str:
    """Return PopART's spelling of a setting's name."""
    first, *others = "learning_rate".split("_") if name == "lr" else name.split("_")
    return first + "".join(map(str.capitalize, others))


def _check_number(name: str, value: Any) -> float:
    # A tensor is none, not even one of a single element: the settings are compiled into the program.
    require(isinstance(value, numbers.Real), f"Expected a number for {name} but got {value!r} instead")
    return value if isinstance(value, (int, float)) else float(value)


def _is_constant(optimizer: torch.optim.Optimizer, kind: OptimizerKind, name: str, value: object) -> bool:
    if isinstance(optimizer, optim.Optimizer):
        return optimizer.variable_attrs.isConstant(name)
    if name == "weight_decay" and kind == OptimizerKind.ADAMW:
        return bool(value == 0.01)
    # Not in the table: alpha, nesterov and betas, which are constant whatever they are.
    return name not in _CONSTANT_IF_EQUAL or bool(value == _CONSTANT_IF_EQUAL[name])


def _switch_to_running_mean(options: Options, is_compiled: bool) -> None:
    running = MeanReductionStrategy.Running
    training = options.Training
    if training.meanAccumulationAndReplicationReductionStrategy == running:
        return
    if is_compiled:
        raise ValueError(
            "Invalid optimizer: the new optimizer would require changing "
            "options.Training.meanAccumulationAndReplicationReductionStrategy to "
            "poptorch.MeanReductionStrategy.Running but the executable is already compiled."
        )
    # the executor's own copy of the options is frozen by now
    was_frozen = training._is_frozen
    training._unfreeze()
    training.setMeanAccumulationAndReplicationReductionStrategy(running)
    training._freeze(was_frozen)


def describe_settings(settings: Mapping[str, Any], tensors: Sequence[Sequence[str]]) -> List[str]:
    """Return a log line for the graph and one for each group; `tensors` are the names of each group's parameters."""
    kind = settings["optimizer_type"]
    name = kind.name.replace("_NO_BIAS", "").replace("_CENTERED", "")
    # SGD2 has no velocity scaling of its own: the back-end passes the loss scaling.
    others = {"velocityScaling": settings["defaults"]["lossScaling"]} if kind == OptimizerKind.SGD2 else {}
    graph = {
        key if key in ("lossScaling", "nesterov") else f"default{key[0].upper()}{key[1:]}": pair
        for key, pair in {**settings["defaults"], **others}.items()
    }
    # the log has one name for the first moment; SGD's settings call it velocity
    first_moment = settings.get("velocityAccumType", settings.get("firstOrderMomentumAccumType", False))
    is_half = {**settings, "firstOrderMomentumAccumType": first_moment}
    types = ", ".join(f"{key}={'float16' if is_half.get(key, False) else 'float32'}" for key in _SETTING_TYPES)
    use_tf_variant, max_norm = int(settings.get("useTfVariant", False)), settings.get("maxGradNorm", float("inf"))
    for_all = f"{types}, useTfVariant={use_tf_variant}, maxGradNorm={max_norm:g}"
    lines = [f"Updating graph optimizer with {name}, {_join_pairs(graph)}, {for_all}"]
    for number, (group, names) in enumerate(zip(settings["groups"], tensors)):
        pairs = _join_pairs({**group, **others})
        lines.append(f"Updating group {number} optimizer with {name}, {pairs} for (tensors affected {list(names)})")
    return lines


def _join_pairs(pairs: Mapping[str, Tuple[float, bool]]) -> str:
    return ", ".join(
        f"{key}={value:g}{' (const)' if constant else ''}" for key, (value, constant) in sorted(pairs.items())
    )


_CLASSES: Mapping[OptimizerKind, Type[optim.Optimizer]] = {
    **dict.fromkeys([OptimizerKind.SGD1, OptimizerKind.SGD2], optim.SGD),
    OptimizerKind.ADAM: optim.Adam,
    **dict.fromkeys([OptimizerKind.ADAMW, OptimizerKind.ADAMW_NO_BIAS], optim.AdamW),
    **dict.fromkeys([OptimizerKind.RMSPROP, OptimizerKind.RMSPROP_CENTERED], optim.RMSprop),
    **dict.fromkeys([OptimizerKind.LAMB, OptimizerKind.LAMB_NO_BIAS], optim.LAMB),
}
_PLAIN_CLASSES = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)

# Arguments of PopTorch's classes that plain torch groups lack, with the value that changes nothing.
_MISSING_IN_TORCH = {"velocity_scaling": 1.0, "amsgrad": False}
# The learning rate is never constant: no number equals NaN.
_CONSTANT_IF_EQUAL = {
    "dampening": 0.0,
    "eps": 1e-8,
    "loss_scaling": 1.0,
    "lr": math.nan,
    "max_weight_norm": 65500.0,
    "momentum": 0.0,
    "velocity_scaling": 1.0,
    "weight_decay": 0.0,
}

# The last two are marks of torch's schedulers, or of programs that silence them, that the host's `step` was called.
_NOT_ATTRIBUTES = {"defaults", "state", "param_groups", "variable_attrs", "_opt_called", "_step_count"}
_POPTORCH_NAMES = frozenset(
    {"_state_dict", "ipu_state_is_dirty", "host_state_is_dirty", "state_dict", "max_weight_norm"}.union(
        *(cls._child_only for cls in _CLASSES.values())
    )
)
_SETTING_TYPES = ("accumType", "firstOrderMomentumAccumType", "secondOrderMomentumAccumType")
_IGNORED_SETTINGS = {
    "maximize": "the device minimises the loss",
    "differentiable": "the device's update is not part of any graph of gradients",
    "capturable": "there is no CUDA graph to capture",
}
