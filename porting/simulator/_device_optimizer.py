"""The optimizer of a training executor: its settings as the device has them, and its state in PopTorch's names."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ..engines.device_state import DeviceState
from ..engines.updates import ensure_slots
from . import optim
from ._logging import cpp_log, cpp_log_enabled
from ._optimizer_attributes import GroupSettings, OptimizerAttrTracker, convertOptimizerToDict, device_groups
from ._optimizer_log import optimizer_log_lines
from .options import Options

__all__ = ["DeviceOptimizer"]


class DeviceOptimizer:
    """What the device knows of the host's optimizer: only what was last handed over."""

    def __init__(self, options: Options) -> None:
        """Start without an optimizer; `options` are the executor's own."""
        self._options = options
        self._tracker = OptimizerAttrTracker(options)
        self.host: Optional[torch.optim.Optimizer] = None
        self.settings: Optional[Dict[str, Any]] = None
        self.groups: List[GroupSettings] = []
        self.group_names: List[List[str]] = []
        self._pending = False

    def take(self, optimizer: torch.optim.Optimizer, *, is_compiled: bool) -> None:
        """Read the settings of `optimizer`; nothing reaches the device before `upload_settings`."""
        settings = convertOptimizerToDict(optimizer, self._tracker, self._options, is_compiled)
        self._pending = self._pending or settings != self.settings or optimizer is not self.host
        self.settings, self.host = settings, optimizer

    def upload_settings(self, names: Mapping[int, str], state: DeviceState) -> None:
        """Hand the settings that changed to the device; `names` gives parameters' names by identity of the host tensor."""
        if self.host is None or not self._pending:
            return
        self._pending = False
        self.groups = device_groups(self.host)
        self.group_names = [
            [names[id(p)] for p in group.params if id(p) in names and state.parameters[names[id(p)]].requires_grad]
            for group in self.groups
        ]
        for settings, members in zip(self.groups, self.group_names):
            ensure_slots(settings, members, state.parameters, state.slots)
        if self.settings is not None and cpp_log_enabled("debug"):
            for line in optimizer_log_lines(self.settings, self.group_names):
                cpp_log("debug", line)

    def upload_state(self, state: DeviceState) -> None:
        """Hand the state that was loaded into a PopTorch optimizer to the device; absent entries stay as they are."""
        host = self.host
        if not isinstance(host, optim.Optimizer) or not host.ipu_state_is_dirty or not host.has_state():
            return
        cpp_log("debug", "Writing optimiser state tensors from host to IPU memory.")
        for key, value in (host._state_dict["ipu_state"] or {}).items():
            slot, _, name = key.partition("___")
            if slot in state.slots.get(name, {}):
                state.slots[name][slot].copy_(value.reshape(state.slots[name][slot].shape))
        self._apply_parameters(host._state_dict["ipu_param"] or {})
        host.ipu_state_is_dirty = False
        host.host_state_is_dirty = True

    def read_state(self, state: DeviceState) -> None:
        """Fetch the device's state into the host's PopTorch optimizer, if it is out of date."""
        host = self.host
        if not isinstance(host, optim.Optimizer) or not host.host_state_is_dirty:
            return
        cpp_log("debug", "Writing optimiser state tensors from IPU to host.")
        slots = {
            f"{slot}___{name}": tensor.detach().clone()
            for name, own in state.slots.items()
            for slot, tensor in own.items()
        }
        host._state_dict = {"ipu_state": slots, "ipu_param": self._parameters()}
        host.host_state_is_dirty = False

    def _parameters(self) -> Dict[str, torch.Tensor]:
        found: Dict[str, float] = {}
        for settings, members in zip(self.groups, self.group_names):
            for key, value in _named_settings(settings):
                found.update({f"{key}___specific___{name}": value for name in members})
            found["lossScaling_FLOAT"] = settings.loss_scaling
        return {key: torch.tensor(value, dtype=torch.float32) for key, value in found.items()}

    def _apply_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        """Let loaded hyper-parameters hold until the next settings arrive."""
        for index, (settings, members) in enumerate(zip(self.groups, self.group_names)):
            for name in members[:1]:
                self.groups[index] = dataclasses.replace(settings, **_loaded_settings(settings, name, values))


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


def _loaded_settings(settings: GroupSettings, name: str, values: Mapping[str, torch.Tensor]) -> Dict[str, float]:
    loaded = {key: float(values[f"{key}___specific___{name}"]) for key, _ in _named_settings(settings)
              if f"{key}___specific___{name}" in values}
    if not _is_sgd(settings):
        words = {"learningRate": "learning_rate", "weightDecay": "weight_decay"}
        return {words[key]: value for key, value in loaded.items()}
    undamped = 1.0 - settings.dampening
    result: Dict[str, float] = {}
    if "scaledLearningRate0" in loaded and undamped:
        result["learning_rate"] = loaded["scaledLearningRate0"] * settings.loss_scaling / undamped
    rate = result.get("learning_rate", settings.learning_rate) * undamped
    if "weightDecayScaleFactor0" in loaded and rate:
        result["weight_decay"] = (1.0 - loaded["weightDecayScaleFactor0"]) / rate
    return result
