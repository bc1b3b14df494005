"""Keep the optimizer of a training executor: its settings as the device has them, and its state in PopTorch's names.

The device session owns one `DeviceOptimizer`.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from ...engines.calls.device_state import DeviceState
from ...engines.calls.group_settings import GroupSettings, read_settings
from ...engines.update.updates import ensure_slots, list_slots
from ...host_tensors import host_tensors
from ...torch_insides.modes import DisableTorchFunctionSubclass
from .. import optim
from .._graph.anchors import OptimizerNames
from .._logging import cpp_log, cpp_log_enabled, logger
from .._optimizer_attributes import OptimizerAttrTracker, convertOptimizerToDict, describe_settings
from .._options_impl import require
from ..errors import native_error
from ..options import Options
from .device_names import apply_loaded, collect_parameters, read_entries, write_entries

__all__ = ["DeviceOptimizer", "name_parameters"]

# The hyper-parameters that each PopTorch optimizer last got from a device, or that newer settings replaced: sending
# those back changes nothing, while others were loaded by the user and take the place of the present settings.
_parameters_read: weakref.WeakKeyDictionary[Any, Dict[str, torch.Tensor]] = weakref.WeakKeyDictionary()


class DeviceOptimizer:
    """The device's copy of the host's optimizer: the settings that were last sent.

    `groups` are the settings of the parameter groups and `group_names` the parts of parameters that each updates.
    `synced` is the host's optimizer if it is PopTorch's, which exchanges state with the device; torch's do not.
    """

    def __init__(self, options: Options) -> None:
        """Start without an optimizer and without a device; `options` are the executor's own."""
        self._options = options
        self._tracker = OptimizerAttrTracker(options)
        self.host: Optional[torch.optim.Optimizer] = None
        self.synced: Optional[optim.Optimizer] = None
        self.settings: Dict[str, Any] = {}
        self.groups: List[GroupSettings] = []
        self.group_names: List[List[str]] = []
        self._members: List[List[str]] = []
        self._device: Optional[DeviceState] = None
        self._taken_groups: List[GroupSettings] = []
        self._compiled_settings: Dict[str, Any] = {}
        self._is_pending = False
        self._is_new = False
        self._holds_loaded = False
        self._is_left = False

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """Read the settings of `optimizer`; nothing reaches the device before `upload_settings`.

        An optimizer that is replaced first gets the device's state. Raises for settings that the device does not have,
        and then nothing changes.
        """
        settings = convertOptimizerToDict(optimizer, self._tracker, self._options, self._device is not None)
        groups = read_settings(optimizer)
        old, new = self.settings.get("optimizer_type"), settings["optimizer_type"]
        if self._device is not None and old is not None and old != new:
            raise native_error(
                f"The optimizer type cannot change from {old.name} to {new.name} once the model is compiled: the "
                "optimizer's state is part of the executable. Call destroy() and wrap the model again.",
                kind="popart_exception",
            )
        is_other = optimizer is not self.host
        if is_other:
            self.read_state()
            self._restore_state_dict()
        if isinstance(optimizer, optim.Optimizer):
            if is_other and self._device is not None:
                optimizer.ipu_state_is_dirty, optimizer.host_state_is_dirty = True, False
            optimizer.state_dict = _SyncedStateDict(self, optimizer)  # type: ignore[method-assign]
            if self._device is not None and settings != self.settings and optimizer.has_state():
                _parameters_read[optimizer] = optimizer._state_dict["ipu_param"]
        self._is_new = self._is_new or settings != self.settings
        self._is_pending = self._is_pending or self._is_new or is_other
        self.settings, self.host, self._taken_groups = settings, optimizer, groups
        self.synced = optimizer if isinstance(optimizer, optim.Optimizer) else None

    def require_own(self, names: Mapping[int, str]) -> None:
        """Raise KeyError, as PopTorch's look-up does, if parameters of the optimizer are not the model's."""
        num_foreign = _count_foreign(self._taken_groups, names)
        if num_foreign:
            raise KeyError(f"{num_foreign} parameters of the optimizer do not belong to the model")

    def _restore_state_dict(self) -> None:
        """Restore the own `state_dict` of the host's optimizer."""
        own = self.host.__dict__.get("state_dict") if self.host is not None else None
        if isinstance(own, _SyncedStateDict) and own.device_optimizer is self:
            del self.host.__dict__["state_dict"]

    # -- to the device -----------------------------------------------------------------------------------------------

    def attach(self, names: Mapping[int, str], device: DeviceState) -> None:
        """Send all settings to `device`, and the state that the host's optimizer holds."""
        self._device = device
        self._is_pending = self._is_new = True
        self.upload_settings(names)
        if self.synced is not None:
            self.synced.ipu_state_is_dirty, self.synced.host_state_is_dirty = True, False
            self.upload_state()

    def move_to(self, device: DeviceState) -> None:
        """Continue with a state that has the same values in other tensors."""
        self._device = device

    def upload_settings(self, names: Mapping[int, str]) -> None:
        """Send changed settings to the device; raises `poptorch.Error`, and sends none, if one is a constant there."""
        if self._device is None or not self._is_pending:
            return
        _refuse_changed_constants(self._compiled_settings, self.settings)
        self._compiled_settings = self._compiled_settings or self.settings
        self._is_pending = self._holds_loaded = False
        self.groups = list(self._taken_groups)
        self._members = self._list_members(self._device, names)
        self.group_names = _list_parts(self._members, self._device)
        num_foreign = _count_foreign(self.groups, names)
        if num_foreign:
            self._tracker.log_once(
                f"{num_foreign} parameters of the optimizer do not belong to the model: they will not be trained"
            )
        for settings, part_names in zip(self.groups, self.group_names):
            ensure_slots(settings, part_names, self._device.parameters, self._device.slots)
        if self._is_new and cpp_log_enabled("debug"):
            for line in describe_settings(self.settings, self._members):
                cpp_log("debug", line)
        self._is_new = False
        host = self.synced
        if host is not None and host.has_state() and not (host.ipu_state_is_dirty or host.host_state_is_dirty):
            # the state that was read from the device before gets the settings of now: a checkpoint may follow
            parameters = self.read_hyper_parameters()
            host._state_dict = {**host._state_dict, "ipu_param": parameters}
            _parameters_read[host] = parameters

    def _list_members(self, device: DeviceState, names: Mapping[int, str]) -> List[List[str]]:
        """Return the parameters of each group, as taken last, that train on `device`."""
        parameters, parts = device.parameters, device.parts
        return [
            [name for name in _list_names(group.params, names) if parameters[parts[name][0]].requires_grad]
            for group in self._taken_groups
        ]

    def list_groups(self, device: DeviceState, names: Mapping[int, str]) -> Tuple[List[GroupSettings], List[List[str]]]:
        """Return the groups that `attach` will bring to a device like `device`, and the parts that each updates."""
        return list(self._taken_groups), _list_parts(self._list_members(device, names), device)

    def upload_state(self) -> None:
        """Send loaded state to the device; `poptorch.Error`, before anything changes, for an entry of another shape."""
        host = self.synced
        if host is None or not host.ipu_state_is_dirty:
            return
        if host.has_state():
            cpp_log("debug", "Writing optimiser state tensors from host to IPU memory.")
            assert self._device is not None
            write_entries(self._device, host._state_dict["ipu_state"])
            loaded = host._state_dict["ipu_param"]
            if _parameters_read.get(host) is not loaded:
                # loaded hyper-parameters hold until other settings arrive
                self._holds_loaded = True
                for index, (settings, members) in enumerate(zip(self.groups, self._members)):
                    for name in members[:1]:
                        self.groups[index] = apply_loaded(settings, name, loaded, self._collect_variable(index))
        host.ipu_state_is_dirty, host.host_state_is_dirty = False, True

    def _collect_variable(self, group: int) -> Set[str]:
        """Name the settings of a group that are not constants of the executable."""
        return {name for name, (_value, is_constant) in self.settings["groups"][group].items() if not is_constant}

    # -- from the device ---------------------------------------------------------------------------------------------

    def list_names(self, model: nn.Module) -> OptimizerNames:
        """Return the names of the tensors with the state of `model`'s parameters and with the hyper-parameters."""
        if self.host is None:
            return OptimizerNames()
        names = name_parameters(model)
        slots: Dict[str, Tuple[str, ...]] = {}
        hyper_parameters: List[str] = []
        for index, group in enumerate(self._taken_groups):
            stems = list(collect_parameters(group, self._collect_variable(index)))
            for name in _list_names([parameter for parameter in group.params if _is_trained(parameter)], names):
                slots[name] = list_slots(group)
                hyper_parameters.extend(f"{stem}___specific___{name}" for stem in stems)
        return OptimizerNames(slots, [*hyper_parameters, "lossScaling_FLOAT"])

    def read_state(self, *, keeps_memory: bool = False) -> None:
        """Fetch the device's state into the host's PopTorch optimizer, if it is out of date.

        With `keeps_memory` the tensors of a device that will not be used any more become the host's.
        """
        host = self.synced
        if self._device is None or host is None or not host.host_state_is_dirty:
            return
        cpp_log("debug", "Writing optimiser state tensors from IPU to host.")
        parameters = self.read_hyper_parameters()
        entries = read_entries(self._device, keeps_memory=keeps_memory or self._is_left)
        host._state_dict = {"ipu_state": entries, "ipu_param": parameters}
        host.host_state_is_dirty = False
        if not self._holds_loaded:
            _parameters_read[host] = parameters
        if self._is_left:
            self._let_go()

    def detach(self, *, keeps_memory: bool = False) -> None:
        """Fetch the device's state, as `read_state` does; the next `attach` sends it again."""
        self.read_state(keeps_memory=keeps_memory)
        if self.synced is not None:
            self.synced.ipu_state_is_dirty = self.synced.has_state()

    def destroy(self) -> None:
        """Fetch the device's state and release device and optimizer; the optimizer keeps the state."""
        self.detach(keeps_memory=True)
        self._let_go()

    def leave_device(self) -> None:
        """Release the device of a collected executor; state that was not fetched is kept unread."""
        device = self._device
        if device is None or self.synced is None or not self.synced.host_state_is_dirty:
            self._let_go()
            return
        self._is_left = True
        self._device = DeviceState(
            {},
            [],
            slots=device.slots,
            groups=device.groups,
            parts=device.parts,
            loss_scale_factor=device.loss_scale_factor,
        )

    def _let_go(self) -> None:
        self._restore_state_dict()
        self._device = None
        self._compiled_settings = {}

    def read_hyper_parameters(self) -> Dict[str, torch.Tensor]:
        """Return the values of the hyper-parameters on the device by their names there."""
        found: Dict[str, float] = {}
        for index, (settings, members) in enumerate(zip(self.groups, self._members)):
            for key, value in collect_parameters(settings, self._collect_variable(index)).items():
                found.update({f"{key}___specific___{name}": value for name in members})
            found["lossScaling_FLOAT"] = settings.loss_scaling
        return {key: torch.tensor(value, dtype=torch.float32) for key, value in found.items()}


class _SyncedStateDict:
    """The `state_dict` of an optimizer that an executor uses: it fetches what is newer on the device first."""

    def __init__(self, device_optimizer: DeviceOptimizer, optimizer: optim.Optimizer) -> None:
        self.device_optimizer = device_optimizer
        self._optimizer = weakref.ref(optimizer)

    def __call__(self) -> Dict[str, Any]:
        optimizer = self._optimizer()
        if optimizer is None:
            raise ReferenceError("the optimizer of this `state_dict` no longer exists")
        require(
            not (optimizer.host_state_is_dirty and optimizer.ipu_state_is_dirty),
            "Both host and ipu states cannot be dirty at the same time.",
        )
        if self.device_optimizer.synced is optimizer:
            if not optimizer.host_state_is_dirty and optimizer.has_state():
                logger.debug("Using cached optimiser state dict")
            self.device_optimizer.read_state()
        return optimizer.get_state_dict()


def _list_parts(members: Sequence[Sequence[str]], device: DeviceState) -> List[List[str]]:
    return [[part for name in of_group for part in device.parts[name]] for of_group in members]


def _refuse_changed_constants(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if not old:
        return
    replaced = _collect_places(new)
    for where, before in _collect_places(old).items():
        after = replaced.get(where, before)
        for name, (value, is_constant) in before.items():
            if after[name][1] != is_constant or (is_constant and after[name][0] != value):
                raise native_error(
                    f"`{name}` {where} is a constant of the executable and cannot change from {value} to "
                    f"{after[name][0]}: give it a value when the optimizer is made, or mark it with "
                    "variable_attrs.markAsVariable(), before the model is compiled.",
                    kind="popart_exception",
                )


def _collect_places(settings: Mapping[str, Any]) -> Dict[str, Mapping[str, Any]]:
    groups = {f"of group {i}": group for i, group in enumerate(settings["groups"])}
    return {**groups, "of the optimizer": {"lossScaling": settings["defaults"]["lossScaling"]}}


def _count_foreign(groups: Sequence[GroupSettings], names: Mapping[int, str]) -> int:
    return sum(len(group.params) - len(_list_names(group.params, names)) for group in groups)


def _list_names(parameters: Sequence[torch.Tensor], names: Mapping[int, str]) -> List[str]:
    found = (names.get(id(p)) or names.get(_find_address(p)) for p in parameters)
    return [name for name in found if name is not None]


def name_parameters(model: nn.Module) -> Dict[int, str]:
    """Return the names of `model`'s parameters by the identity of the tensor and by the address of its memory."""
    parameters = [host for host in host_tensors(model) if host.kind == "parameter"]
    names = {_find_address(host.tensor): host.name for host in parameters}
    names.pop(0, None)
    names.update({id(host.tensor): host.name for host in parameters})
    return names


def _is_trained(parameter: torch.Tensor) -> bool:
    """Tell whether a parameter requires a gradient; this does not update a wrapped one."""
    with DisableTorchFunctionSubclass():
        return torch.Tensor.requires_grad.__get__(parameter)  # type: ignore[attr-defined]


def _find_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory; this does not update a wrapped parameter."""
    with DisableTorchFunctionSubclass():
        return torch.Tensor.data_ptr(tensor)
