"""The optimizer of a training executor: its settings as the device has them, and its state in PopTorch's names."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ..capture.module_state import host_tensors
from ..engines.device_state import DeviceState
from ..engines.updates import ensure_slots
from . import optim
from ._logging import cpp_log, cpp_log_enabled, logger
from ._optimizer_attributes import GroupSettings, OptimizerAttrTracker, convertOptimizerToDict, device_groups
from ._optimizer_log import optimizer_log_lines
from .errors import createPoptorchError, native_error
from .options import Options

__all__ = ["DeviceOptimizer", "parameter_names"]

# The hyper-parameters that each PopTorch optimizer last got from a device: sending those back changes nothing, while
# others were loaded by the user and take the place of the present settings.
_parameters_read: weakref.WeakKeyDictionary[Any, Dict[str, torch.Tensor]] = weakref.WeakKeyDictionary()


class DeviceOptimizer:
    """What the device knows of the host's optimizer: only what was last handed over."""

    def __init__(self, options: Options) -> None:
        """Start without an optimizer and without a device; `options` are the executor's own."""
        self._options = options
        self._tracker = OptimizerAttrTracker(options)
        self.host: Optional[torch.optim.Optimizer] = None
        self.settings: Dict[str, Any] = {}
        self.groups: List[GroupSettings] = []
        self.group_names: List[List[str]] = []
        self._device: Optional[DeviceState] = None
        self._taken_groups: List[GroupSettings] = []
        self._is_pending = False
        self._is_new = False

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """Read the settings of `optimizer`; nothing reaches the device before `upload_settings`.

        An optimizer that is replaced first gets what the device knows. Raises for settings that the device does not
        have, and then nothing changes.
        """
        settings = convertOptimizerToDict(optimizer, self._tracker, self._options, self._device is not None)
        groups = device_groups(optimizer)
        self._refuse_other_type(settings)
        is_other = optimizer is not self.host
        if is_other:
            self.read_state()
            self._release()
        if isinstance(optimizer, optim.Optimizer):
            if is_other and self._device is not None:
                optimizer.ipu_state_is_dirty, optimizer.host_state_is_dirty = True, False
            optimizer.state_dict = _SyncedStateDict(self, optimizer)  # type: ignore[method-assign]
        self._is_new = self._is_new or settings != self.settings
        self._is_pending = self._is_pending or self._is_new or is_other
        self.settings, self.host, self._taken_groups = settings, optimizer, groups

    def _refuse_other_type(self, settings: Mapping[str, Any]) -> None:
        if self._device is None:
            return
        old, new = self.settings["optimizer_type"], settings["optimizer_type"]
        if old != new:
            raise native_error(
                f"The optimizer type cannot change from {old.name} to {new.name} once the model is compiled: the "
                "optimizer's state is part of the executable. Call destroy() and wrap the model again.",
                kind="popart_exception",
            )

    def _release(self) -> None:
        """Give the host's optimizer its own `state_dict` back."""
        own = self.host.__dict__.get("state_dict") if self.host is not None else None
        if isinstance(own, _SyncedStateDict) and own.belongs_to(self):
            del self.host.__dict__["state_dict"]

    def uses(self, optimizer: Any) -> bool:
        """Tell whether `optimizer` is the one that was taken last."""
        return optimizer is self.host

    # -- to the device -----------------------------------------------------------------------------------------------

    def attach(self, names: Mapping[int, str], device: DeviceState) -> None:
        """Send all settings to `device`, and the state that the host's optimizer holds."""
        self._device = device
        self._is_pending = self._is_new = True
        self.upload_settings(names)
        if isinstance(self.host, optim.Optimizer):
            self.host.ipu_state_is_dirty, self.host.host_state_is_dirty = True, False
            self.upload_state()

    def upload_settings(self, names: Mapping[int, str]) -> None:
        """Hand the settings that changed to the device; `names` are what `parameter_names` gives."""
        if self._device is None or not self._is_pending:
            return
        self._is_pending = False
        parameters = self._device.parameters
        self.groups = list(self._taken_groups)
        self.group_names = [
            [name for name in _names_of(group.params, names) if parameters[name].requires_grad] for group in self.groups
        ]
        self._warn_of_foreign(names)
        for settings, members in zip(self.groups, self.group_names):
            ensure_slots(settings, members, parameters, self._device.slots)
        if self._is_new and cpp_log_enabled("debug"):
            for line in optimizer_log_lines(self.settings, self.group_names):
                cpp_log("debug", line)
        self._is_new = False

    def _warn_of_foreign(self, names: Mapping[int, str]) -> None:
        num_foreign = sum(len(group.params) - len(_names_of(group.params, names)) for group in self.groups)
        if num_foreign:
            self._tracker.log_once(
                f"{num_foreign} parameters of the optimizer do not belong to the model: they will not be trained"
            )

    @property
    def has_state_to_upload(self) -> bool:
        """Whether a PopTorch optimizer holds a state that the device does not have."""
        host = self.host
        return isinstance(host, optim.Optimizer) and host.ipu_state_is_dirty and host.has_state()

    def upload_state(self) -> None:
        """Hand the state that was loaded into a PopTorch optimizer to the device; absent entries stay as they are.

        Raises `poptorch.Error`, before anything changes, for an entry of another shape.
        """
        host = self.host
        if not isinstance(host, optim.Optimizer) or not host.ipu_state_is_dirty:
            return
        if host.has_state():
            self._write_state(host)
        host.ipu_state_is_dirty, host.host_state_is_dirty = False, True

    def _write_state(self, host: optim.Optimizer) -> None:
        cpp_log("debug", "Writing optimiser state tensors from host to IPU memory.")
        known = _state_entries(self._device)
        loaded = {key: value for key, value in host._state_dict["ipu_state"].items() if key in known}
        for key, value in loaded.items():
            if value.numel() != known[key].numel():
                raise createPoptorchError(
                    f"The optimizer state {key} has shape {list(value.shape)}, the model needs {list(known[key].shape)}"
                )
        for key, value in loaded.items():
            known[key].copy_(value.reshape(known[key].shape))
        parameters = host._state_dict["ipu_param"]
        if _parameters_read.get(host) is not parameters:
            self._apply_parameters(parameters)

    def _apply_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        """Let loaded hyper-parameters hold until other settings arrive."""
        for index, (settings, members) in enumerate(zip(self.groups, self.group_names)):
            for name in members[:1]:
                self.groups[index] = _with_loaded(settings, name, values)

    # -- from the device ---------------------------------------------------------------------------------------------

    def mark_trained(self) -> None:
        """Note that the device's state is newer than the host's."""
        if isinstance(self.host, optim.Optimizer):
            self.host.host_state_is_dirty = True

    def read_state(self) -> None:
        """Fetch the device's state into the host's PopTorch optimizer, if it is out of date."""
        host = self.host
        if self._device is None or not isinstance(host, optim.Optimizer) or not host.host_state_is_dirty:
            return
        cpp_log("debug", "Writing optimiser state tensors from IPU to host.")
        parameters = self._parameters()
        entries = {key: tensor.detach().clone() for key, tensor in _state_entries(self._device).items()}
        host._state_dict = {"ipu_state": entries, "ipu_param": parameters}
        host.host_state_is_dirty = False
        _parameters_read[host] = parameters

    def detach(self) -> None:
        """Fetch the device's state; it goes back with the next `attach`."""
        self.read_state()
        if isinstance(self.host, optim.Optimizer):
            self.host.ipu_state_is_dirty = self.host.has_state()

    def destroy(self) -> None:
        """Fetch the device's state and let go of device and optimizer; the optimizer keeps the state."""
        self.detach()
        self._release()
        self._device = None

    def _parameters(self) -> Dict[str, torch.Tensor]:
        found: Dict[str, float] = {}
        for settings, members in zip(self.groups, self.group_names):
            for key, value in _named_settings(settings):
                found.update({f"{key}___specific___{name}": value for name in members})
            found["lossScaling_FLOAT"] = settings.loss_scaling
        return {key: torch.tensor(value, dtype=torch.float32) for key, value in found.items()}


class _SyncedStateDict:
    """The `state_dict` of an optimizer that an executor uses: it fetches what is newer on the device first."""

    def __init__(self, device_optimizer: DeviceOptimizer, optimizer: optim.Optimizer) -> None:
        self._device_optimizer = device_optimizer
        self._optimizer = weakref.ref(optimizer)

    def belongs_to(self, device_optimizer: DeviceOptimizer) -> bool:
        """Tell whether it fetches from `device_optimizer`."""
        return self._device_optimizer is device_optimizer

    def __call__(self) -> Dict[str, Any]:
        optimizer = self._optimizer()
        if optimizer is None:
            raise ReferenceError("the optimizer of this `state_dict` no longer exists")
        if self._device_optimizer.uses(optimizer):
            if not optimizer.host_state_is_dirty and optimizer.has_state():
                logger.debug("Using cached optimiser state dict")
            self._device_optimizer.read_state()
        return optimizer.get_state_dict()


def _names_of(parameters: Sequence[torch.Tensor], names: Mapping[int, str]) -> List[str]:
    found = (names.get(id(p)) or names.get(_memory_address(p)) for p in parameters)
    return [name for name in found if name is not None]


def parameter_names(model: nn.Module) -> Dict[int, str]:
    """Return the names of `model`'s parameters by the identity of the tensor and by the address of its memory."""
    parameters = [host for host in host_tensors(model) if host.kind == "parameter"]
    names = {_memory_address(host.tensor): host.name for host in parameters}
    names.pop(0, None)
    names.update({id(host.tensor): host.name for host in parameters})
    return names


def _memory_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory; a wrapped parameter is not brought up to date by the question."""
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.data_ptr(tensor)


def _state_entries(device: Optional[DeviceState]) -> Dict[str, torch.Tensor]:
    """Return the device's state tensors under PopTorch's names; they are the tensors themselves."""
    slots = device.slots if device is not None else {}
    return {f"{slot}___{name}": tensor for name, own in slots.items() for slot, tensor in own.items()}


def _is_sgd(settings: GroupSettings) -> bool:
    return settings.kind.name.startswith("SGD")


def _named_settings(settings: GroupSettings) -> Sequence[Tuple[str, float]]:
    if _is_sgd(settings):
        rate = settings.learning_rate * (1.0 - settings.dampening)
        return (
            ("scaledLearningRate0", rate / settings.loss_scaling),
            ("weightDecayScaleFactor0", 1.0 - rate * settings.weight_decay),
        )
    return (("learningRate", settings.learning_rate), ("weightDecay", settings.weight_decay))


def _with_loaded(settings: GroupSettings, name: str, values: Mapping[str, torch.Tensor]) -> GroupSettings:
    """Return `settings` with those values for the parameter `name` that differ, in the device's precision."""
    scaling = float(values.get("lossScaling_FLOAT", settings.loss_scaling))
    if scaling != settings.loss_scaling:
        settings = dataclasses.replace(settings, loss_scaling=scaling)
    loaded = {}
    for key, present in _named_settings(settings):
        value = values.get(f"{key}___specific___{name}")
        if value is not None and float(value) != float(torch.tensor(present, dtype=torch.float32)):
            loaded[key] = float(value)
    if _is_sgd(settings):
        return _with_loaded_sgd(settings, loaded)
    return dataclasses.replace(
        settings,
        learning_rate=loaded.get("learningRate", settings.learning_rate),
        weight_decay=loaded.get("weightDecay", settings.weight_decay),
    )


def _with_loaded_sgd(settings: GroupSettings, loaded: Mapping[str, float]) -> GroupSettings:
    undamped = 1.0 - settings.dampening
    if "scaledLearningRate0" in loaded and undamped:
        rate = loaded["scaledLearningRate0"] * settings.loss_scaling
        settings = dataclasses.replace(settings, learning_rate=rate / undamped)
    rate = settings.learning_rate * undamped
    if "weightDecayScaleFactor0" in loaded and rate:
        return dataclasses.replace(settings, weight_decay=(1.0 - loaded["weightDecayScaleFactor0"]) / rate)
    return settings
