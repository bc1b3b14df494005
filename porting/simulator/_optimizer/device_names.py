"""Name the device's optimizer state and hyper-parameters as PopART does. `DeviceOptimizer` uses it."""

from __future__ import annotations

import dataclasses
from typing import AbstractSet, Any, Dict, List, Mapping, Optional, Tuple

import torch

from ...engines.calls.device_state import DeviceState
from ...engines.calls.group_settings import GroupSettings, OptimizerKind
from .._optimizer_attributes import make_device_name
from ..errors import createPoptorchError

__all__ = ["apply_loaded", "collect_parameters", "read_entries", "write_entries"]

# PopART has a tensor for these even where they are constants.
_ALWAYS = ("learningRate", "weightDecay")
_NUMBERS = ("learning_rate", "weight_decay", "beta1", "beta2", "eps", "alpha", "momentum", "max_weight_norm")
_FIELDS = {make_device_name(name): name for name in _NUMBERS}


def collect_parameters(settings: GroupSettings, variable: AbstractSet[str]) -> Dict[str, float]:
    """Return the values of one group that are no constants of the executable, by the stem of their names.

    `variable` are the settings that may change. SGD folds its settings into compound values, for other optimizers
    learning rate and weight decay are always there.
    """
    if not settings.kind.name.startswith("SGD"):
        names = [name for name in _FIELDS if name in _ALWAYS or name in variable]
        return {name: getattr(settings, _FIELDS[name]) for name in names}
    undamped, scaling = 1.0 - settings.dampening, settings.loss_scaling
    if not settings.momentum:
        rate = settings.learning_rate * undamped
        return {"scaledLearningRate0": rate / scaling, "weightDecayScaleFactor0": 1.0 - rate * settings.weight_decay}
    form, velocity = _find_form(settings)
    return {
        f"scaledLearningRate{form}": settings.learning_rate / velocity,
        f"scaledMomentum{form}": settings.momentum,
        f"dampeningScaleFactor{form}": undamped * velocity / scaling,
        "scaledWeightDecay1": undamped * settings.weight_decay * velocity,
    }


def apply_loaded(
    settings: GroupSettings, name: str, values: Mapping[str, torch.Tensor], variable: AbstractSet[str]
) -> GroupSettings:
    """Return `settings` with those of `values` for the parameter `name` that differ, in the device's precision."""
    scaling = float(values.get("lossScaling_FLOAT", settings.loss_scaling))
    if scaling != settings.loss_scaling:
        settings = dataclasses.replace(settings, loss_scaling=scaling)
    loaded: Dict[str, Any] = {}
    for key, present in collect_parameters(settings, variable).items():
        value = values.get(f"{key}___specific___{name}")
        # Compared as the device has them: a value that was only rounded on its way must not replace the exact one.
        if value is not None and float(value) != float(torch.tensor(present, dtype=torch.float32)):
            loaded[key] = float(value)
    if not settings.kind.name.startswith("SGD"):
        return dataclasses.replace(settings, **{_FIELDS[key]: value for key, value in loaded.items()})
    return _apply_with_momentum(settings, loaded) if settings.momentum else _apply_without_momentum(settings, loaded)


def _find_form(settings: GroupSettings) -> Tuple[int, float]:
    """Return the number of SGD's form, which its compound values end in, and the scaling of its velocity."""
    return (1, settings.velocity_scaling) if settings.kind == OptimizerKind.SGD1 else (2, 1.0)


def _apply_without_momentum(settings: GroupSettings, loaded: Mapping[str, float]) -> GroupSettings:
    undamped = 1.0 - settings.dampening
    if "scaledLearningRate0" in loaded and undamped:
        rate = loaded["scaledLearningRate0"] * settings.loss_scaling
        settings = dataclasses.replace(settings, learning_rate=rate / undamped)
    rate = settings.learning_rate * undamped
    if "weightDecayScaleFactor0" in loaded and rate:
        return dataclasses.replace(settings, weight_decay=(1.0 - loaded["weightDecayScaleFactor0"]) / rate)
    return settings


def _apply_with_momentum(settings: GroupSettings, loaded: Mapping[str, float]) -> GroupSettings:
    form, velocity = _find_form(settings)
    changes: Dict[str, Any] = {}
    if f"scaledLearningRate{form}" in loaded:
        changes["learning_rate"] = loaded[f"scaledLearningRate{form}"] * velocity
    if f"scaledMomentum{form}" in loaded:
        changes["momentum"] = loaded[f"scaledMomentum{form}"]
    if f"dampeningScaleFactor{form}" in loaded:
        changes["dampening"] = 1.0 - loaded[f"dampeningScaleFactor{form}"] / (velocity / settings.loss_scaling)
    # before the weight decay, which is loaded as a product with the new dampening
    settings = dataclasses.replace(settings, **changes)
    undamped = 1.0 - settings.dampening
    if "scaledWeightDecay1" in loaded and undamped:
        return dataclasses.replace(settings, weight_decay=loaded["scaledWeightDecay1"] / (undamped * velocity))
    return settings


def read_entries(device: DeviceState, *, keeps_memory: bool = False) -> Dict[str, torch.Tensor]:
    """Return copies of the state tensors of `device`.

    With `keeps_memory`, for a device that is no longer used, they are its own where these are contiguous; the others
    are freed one after the other, so that not all of them exist twice.
    """
    found = {}
    for key, parts in _collect_entries(device).items():
        joined = _join_parts(device, key, parts)
        if not keeps_memory:
            found[key] = joined.clone(memory_format=torch.contiguous_format)
            continue
        found[key] = joined.contiguous()
        for part in parts:
            storage = part.untyped_storage()
            # the counts of steps are views of one tensor
            is_alone = storage.nbytes() == part.numel() * part.element_size()
            if is_alone and storage.data_ptr() != found[key].untyped_storage().data_ptr():
                storage.resize_(0)
    return found


def write_entries(device: DeviceState, values: Mapping[str, torch.Tensor]) -> None:
    """Write those of `values` that `device` has; `poptorch.Error`, before anything changes, for one of another size."""
    entries = _collect_entries(device)
    loaded = {key: value for key, value in values.items() if key in entries}
    for key, value in loaded.items():
        present = _join_parts(device, key, entries[key])
        if value.numel() != present.numel():
            raise createPoptorchError(
                f"The optimizer state {key} has shape {list(value.shape)}, the model needs {list(present.shape)}"
            )
    for key, value in loaded.items():
        parts = entries[key]
        # in place: the executable was built for these tensors
        for part, row in zip(parts, value.reshape(len(parts), *parts[0].shape).unbind()):
            part.copy_(row)


def _collect_entries(device: DeviceState) -> Dict[str, List[torch.Tensor]]:
    """Return the device's own tensors: those of all parts of a parameter under one name."""
    entries: Dict[str, List[torch.Tensor]] = {}
    for name, parts in device.parts.items():
        for part in parts:
            for slot, tensor in device.slots.get(part, {}).items():
                entries.setdefault(f"{slot}___{name}", []).append(tensor)
    factor: Optional[torch.Tensor] = device.loss_scale_factor
    if factor is not None:
        entries["lossScaleUpdateFactor"] = [factor]
    return entries


def _join_parts(device: DeviceState, key: str, parts: List[torch.Tensor]) -> torch.Tensor:
    _slot, _, name = key.partition("___")
    if name in device.groups:
        # a row for each group of replicas, also where there is only one group
        return torch.stack(parts)
    return parts[0].detach()
