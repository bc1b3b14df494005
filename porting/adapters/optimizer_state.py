"""Translate an optimizer's state between torch, which has it by parameter, and the device, which has it by name.

Ports and checkpoints use it. A state tensor of the device is called `Accl1___layer.weight` (PopTorch's `ipu_state`).
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, MutableMapping, Tuple

import torch
from torch import nn

from porting.adapters.backend_protocol import BackendOptimizer
from porting.diagnostics import UnsupportedOptimizerError

__all__ = [
    "carry_state",
    "collect_changes",
    "collect_slots",
    "fetch_torch_state",
    "name_parameters",
    "read_entries",
    "read_torch_state",
    "set_entries",
    "to_device_state",
    "to_torch_state",
]

# torch's name of a state tensor and the device's. RMSprop: the running square, the momentum, the running mean.
_MOMENTS = {"exp_avg": "Accl1", "exp_avg_sq": "Accl2", "step": "Step"}
_SLOTS: Mapping[type, Mapping[str, str]] = {
    torch.optim.SGD: {"momentum_buffer": "Accl1"},
    torch.optim.Adam: _MOMENTS,
    torch.optim.AdamW: _MOMENTS,
    torch.optim.RMSprop: {"square_avg": "Accl1", "momentum_buffer": "Accl2", "grad_avg": "Accl3"},
}

_MAX_LISTED = 5


def name_parameters(optimizer: torch.optim.Optimizer, model: nn.Module) -> Dict[int, str]:
    """Map the `id` of each of the optimizer's parameters to its name in `model`.

    Raises UnsupportedOptimizerError O003 when some are not `model`'s.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    foreign = [parameter for parameter in held if id(parameter) not in names]
    if foreign:
        shapes = ", ".join(str(list(parameter.shape)) for parameter in foreign[:_MAX_LISTED])
        raise UnsupportedOptimizerError.at_caller(
            "O003",
            message=f"{len(foreign)} of the optimizer's {len(held)} parameters are not the model's",
            notes=f"their shapes: {shapes}{', ...' if len(foreign) > _MAX_LISTED else ''}",
            help=(
                "make the optimizer from the `parameters()` of the very model that is ported, not of a copy",
                "where layers were exchanged since, make it anew, and port again",
            ),
        )
    return {id(parameter): names[id(parameter)] for parameter in held}


def collect_slots(optimizer: torch.optim.Optimizer) -> Mapping[str, str]:
    """Return torch's names of the state of an optimizer, or of one derived from it, with the device's; none if unknown.

    >>> collect_slots(torch.optim.SGD([torch.zeros(1)], lr=0.1))
    {'momentum_buffer': 'Accl1'}
    """
    return next((_SLOTS[kind] for kind in type(optimizer).__mro__ if kind in _SLOTS), {})


def read_entries(target: BackendOptimizer) -> Dict[str, torch.Tensor]:
    """Return the state of a backend's optimizer by the device's names; empty before its first step."""
    return target.state_dict().get("ipu_state") or {}


def set_entries(target: BackendOptimizer, entries: Mapping[str, torch.Tensor]) -> None:
    """Let the device go on with a state by its own names, and with the settings that its optimizer has."""
    target.set_state_dict({"ipu_state": dict(entries), "ipu_param": {}})


def carry_state(source: torch.optim.Optimizer, target: BackendOptimizer, model: nn.Module) -> None:
    """Give the state of `source`, a supported torch optimizer, to its counterpart, which hands it to the device.

    A source without state changes nothing. Raises UnsupportedOptimizerError O005 for a state of the wrong shape.
    """
    entries = to_device_state(_number_by_identity(source), source, model)
    if entries:
        set_entries(target, entries)


def collect_changes(
    source: torch.optim.Optimizer, entries: Mapping[str, torch.Tensor], model: nn.Module
) -> Dict[str, torch.Tensor]:
    """Return what the state of `source` has otherwise than `entries`, the device's; zeros for what it has not.

    What differs only because the parameter's type, which torch gives to a state, has fewer digits is no change.
    """
    held = to_device_state(_number_by_identity(source), source, model)
    changes: Dict[str, torch.Tensor] = {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    held_by = (parameter for group in source.param_groups for parameter in group["params"] if id(parameter) in names)
    for parameter, name in ((parameter, names[id(parameter)]) for parameter in held_by):
        for slot in collect_slots(source).values():
            key = f"{slot}___{name}"
            here, there = held.get(key), entries.get(key)
            if there is not None:
                here = torch.zeros_like(there, dtype=torch.float32) if here is None else here
                there = there.reshape(here.shape).float()
                if torch.equal(here, there) or torch.equal(here, there.to(parameter.dtype).float()):
                    continue
            if here is not None:
                changes[key] = here
    return changes


def read_torch_state(
    entries: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer, model: nn.Module
) -> Dict[torch.Tensor, Dict[str, torch.Tensor]]:
    """Return the state that `optimizer`, a supported torch one, would have by parameter, as float32 copies."""
    state: Dict[torch.Tensor, Dict[str, torch.Tensor]] = {}
    # also of parameters that the optimizer has not any more: their state stays with it
    for name, parameter in model.named_parameters():
        values = {}
        for key, slot in collect_slots(optimizer).items():
            tensor = entries.get(f"{slot}___{name}")
            if tensor is not None:
                shape = torch.Size() if slot == "Step" else parameter.shape
                values[key] = tensor.detach().to("cpu", torch.float32, copy=True).reshape(shape)
        if values:
            state[parameter] = values
    return state


def fetch_torch_state(
    target: BackendOptimizer,
    source: torch.optim.Optimizer,
    state: MutableMapping[Any, Any],
    model: nn.Module,
    *,
    num_steps: int,
) -> None:
    """Bring the device's state, after `num_steps` more steps, into the `state` of `source`."""
    for parameter, values in read_torch_state(read_entries(target), source, model).items():
        own = state[parameter]
        # torch's plain update wants the types that its `load_state_dict` gives
        own.update({key: value if key == "step" else value.to(parameter.dtype) for key, value in values.items()})
        if isinstance(source, torch.optim.RMSprop):
            # torch counts RMSprop's steps without ever using the count; the device does not
            own["step"] = torch.as_tensor(own.get("step", 0), dtype=torch.float32) + num_steps


def to_torch_state(
    device_state: Mapping[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module
) -> Dict[str, Any]:
    """Make the `state_dict` that `optimizer`, a supported torch one, would have after the device's training.

    `device_state` is the `state_dict()` of its counterpart. Hyper-parameters are the optimizer's own; the state tensors
    are float32 copies of the device's. Nothing is changed.
    """
    state = read_torch_state(device_state.get("ipu_state") or {}, optimizer, model)
    packed = optimizer.state_dict()
    counted = {"step": torch.zeros(())} if isinstance(optimizer, torch.optim.RMSprop) else {}
    numbered = {
        index: {**state[parameter], **counted}
        for index, parameter in _iter_parameters(optimizer, packed)
        if parameter in state
    }
    return {**packed, "state": numbered}


def to_device_state(
    torch_state: Mapping[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module
) -> Dict[str, torch.Tensor]:
    """Name the tensors of a `to_torch_state` as the device does; they keep their type, as they would not in torch.

    Raises UnsupportedOptimizerError O005 for a state of the wrong shape.
    """
    names, slots = name_parameters(optimizer, model), collect_slots(optimizer)
    ipu_state = {}
    for index, parameter in _iter_parameters(optimizer, torch_state):
        for key, value in torch_state["state"].get(index, {}).items():
            if key in slots and value is not None:
                name = names[id(parameter)]
                tensor = torch.as_tensor(value, dtype=torch.float32).detach().cpu().clone()
                expected = torch.Size() if key == "step" else parameter.shape
                if tensor.shape != expected:
                    fault = f"has shape {list(tensor.shape)}, not {list(expected)}"
                    raise UnsupportedOptimizerError.at_caller(
                        "O005",
                        message=f"the optimizer's `{key}` for `{name}` {fault}",
                        help="load the optimizer's state from a checkpoint of this model",
                    )
                ipu_state[f"{slots[key]}___{name}"] = tensor
    return ipu_state


def _number_by_identity(source: torch.optim.Optimizer) -> Dict[str, Any]:
    """Return the state of `source` like its `state_dict`, which hooks may have changed."""
    groups = [{"params": [id(parameter) for parameter in group["params"]]} for group in source.param_groups]
    return {"param_groups": groups, "state": {id(parameter): values for parameter, values in source.state.items()}}


def _iter_parameters(
    optimizer: torch.optim.Optimizer, state_dict: Mapping[str, Any]
) -> Iterator[Tuple[int, torch.Tensor]]:
    """List the optimizer's parameters with their numbers in its `state_dict`."""
    for group, packed in zip(optimizer.param_groups, state_dict["param_groups"]):
        yield from zip(packed["params"], group["params"])
