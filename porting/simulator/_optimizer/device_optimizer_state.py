"""The optimizer's state on a device under PopTorch's names; what belongs to groups of replicas has a row for each."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional

import torch

from ...engines.calls.device_state import DeviceState
from ..errors import createPoptorchError

__all__ = ["read_entries", "write_entries"]


def read_entries(device: DeviceState) -> Dict[str, torch.Tensor]:
    """Return copies of the state tensors of `device`."""
    return {key: _join_parts(device, key, parts) for key, parts in _list_entries(device).items()}


def write_entries(device: DeviceState, values: Mapping[str, torch.Tensor]) -> None:
    """Write those of `values` that the device has; absent entries stay as they are.

    Raises `poptorch.Error`, before anything changes, for an entry of another size.
    """
    entries = _list_entries(device)
    loaded = {key: value for key, value in values.items() if key in entries}
    for key, value in loaded.items():
        present = _join_parts(device, key, entries[key])
        if value.numel() != present.numel():
            raise createPoptorchError(
                f"The optimizer state {key} has shape {list(value.shape)}, the model needs {list(present.shape)}"
            )
    for key, value in loaded.items():
        parts = entries[key]
        for part, row in zip(parts, value.reshape(len(parts), *parts[0].shape).unbind()):
            part.copy_(row)


def _list_entries(device: DeviceState) -> Dict[str, List[torch.Tensor]]:
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
    # in the ordinary order, whatever the device prefers
    return parts[0].detach().clone(memory_format=torch.contiguous_format)
