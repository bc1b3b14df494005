"""Wrap the user's model while training executors own its weights: every read of one first fetches the trained values.

`trainingModel` changes the classes of the model, its parameters and its buffers in place to subclasses made for one
executor; they hold a weak reference to it and nothing else. A tensor that several wrapped models share belongs to all
of their executors. `unwrap_model` removes one executor's hold again.
"""

from __future__ import annotations

import copy
import copyreg
from collections import OrderedDict
from functools import partial
from typing import Any, Dict, Iterable, Optional, SupportsIndex

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ...engines.calls.device_state import DeviceState
from ...host_tensors import HostTensor, host_tensors
from ...torch_insides.modes import DisableTorchFunctionSubclass
from .._logging import cpp_log
from ..errors import createPoptorchError
from .weight_owners import ORIGINAL, OWNER, Owner, fetch, find_plain_class, list_owners, make_owned_class, make_plain

__all__ = [
    "download_weights",
    "fetch_other_owners",
    "find_owner",
    "move_shared_weights",
    "read_plain_views",
    "refuse_wrapped",
    "share_weights",
    "unwrap_model",
    "upload_weights",
    "wrap_model",
]

# Attributes of the top module whose reading shows weights to the host.
_WATCHED = frozenset(["_buffers", "_parameters", "forward"])


def find_owner(value: object) -> Optional[Owner]:
    """Return the training executor's hold on a wrapped model or tensor, whether it is still alive or not."""
    owner = getattr(type(value), OWNER, None)
    return owner if isinstance(owner, Owner) else None


def refuse_wrapped(model: object, executor: object = None) -> None:
    """Raise RuntimeError if `model` is wrapped for training by another than `executor`."""
    owner = find_owner(model)
    if owner is not None and (executor is None or owner() is not executor):
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )


def wrap_model(model: nn.Module, owner: Owner) -> None:
    """Change the classes of `model`, its parameters and buffers to those for `owner`, which is alive.

    Tensors that it has already stay so. Lazy parameters are skipped: wrap again when they have a value. Raises
    RuntimeError for a model that another executor wrapped and `poptorch.Error` for a buffer of a class of its own;
    nothing is changed then.
    """
    refuse_wrapped(model, owner())
    hosts = [host for host in host_tensors(model) if not is_lazy(host.tensor)]
    for host in hosts:
        if host.kind == "buffer" and find_plain_class(host.tensor) is not torch.Tensor:
            raise createPoptorchError(f"All buffers must be an instance of torch.Tensor (Got {type(host.tensor)})")
    for host in hosts:
        owners = list_owners(host.tensor)
        if owner not in owners:
            host.tensor.__class__ = make_owned_class(find_plain_class(host.tensor), (*owners, owner))
    if find_owner(model) is None:
        original = type(model)
        members = {
            OWNER: owner,
            ORIGINAL: original,
            "__module__": original.__module__,
            "__qualname__": f"Poptorch{original.__qualname__}",
            "__doc__": original.__doc__,
        }
        wrapped = type(f"Poptorch{original.__name__}", (_WrappedModel, original), members)
        object.__setattr__(model, "__class__", wrapped)


def unwrap_model(model: nn.Module) -> Optional[Owner]:
    """Fetch the trained values and remove the owner's hold on `model` and its tensors; return the owner."""
    owner = find_owner(model)
    if owner is None:
        return None
    fetch((owner,))
    object.__setattr__(model, "__class__", getattr(type(model), ORIGINAL))
    for host in host_tensors(model):
        if find_owner(host.tensor) is not None:
            left = tuple(other for other in list_owners(host.tensor) if other is not owner)
            host.tensor.__class__ = make_owned_class(find_plain_class(host.tensor), left)
    return owner


def read_plain_views(model: nn.Module) -> Dict[str, torch.Tensor]:
    """Return parameters and buffers by first name, as plain tensors in the same memory; nothing is fetched."""
    with DisableTorchFunctionSubclass():
        return {host.name: torch.Tensor.detach(host.tensor) for host in host_tensors(model)}


def upload_weights(model: nn.Module, device: DeviceState, *, names: Optional[Iterable[str]] = None) -> None:
    """Copy parameters and buffers, or only `names`, to `device`; `poptorch.Error`, before any copy, for a lost one.

    A tensor of another shape counts as lost.
    """
    views = read_plain_views(model)
    wanted = set(device.names if names is None else names)
    lost_names = wanted - views.keys() or {
        name for name in wanted - device.groups.keys() if device.read_value(name).shape != views[name].shape
    }
    if lost_names:
        lost = ", ".join(sorted(lost_names))
        raise createPoptorchError(f"The model was compiled with {lost} and no longer has it")
    cpp_log("debug", "Writing weights from host to IPU memory.")
    device.upload(views, names=wanted)


def download_weights(model: nn.Module, device: DeviceState) -> None:
    """Copy the parameters and buffers of `device` into those that the model still has."""
    cpp_log("debug", "Writing weights from IPU to host.")
    for host in host_tensors(model) if device.groups else ():
        if host.name in device.groups:
            # the shape in which replicas return theirs: one row for each, or for each group
            value = device.read_value(host.name)
            with DisableTorchFunctionSubclass():
                if host.tensor.shape != value.shape:
                    host.tensor.data = torch.empty_like(value, dtype=host.tensor.dtype)
    views = read_plain_views(model)
    device.download(views)
    shared = {host.name for host in host_tensors(model) if len(list_owners(host.tensor)) > 1}
    # Another executor may have trained what is constant here.
    device.restore({name: view for name, view in views.items() if name not in shared})


def share_weights(model: nn.Module, owner: Owner, device: DeviceState) -> None:
    """Let the tensors of `model` that `owner` alone owns, and that its `device` trains, share the device's memory."""
    with DisableTorchFunctionSubclass():
        hosts = [host for host in host_tensors(model) if list_owners(host.tensor) == (owner,)]
    owner.memory.share(hosts, partial(_find_trained, device))


def move_shared_weights(owner: Owner, device: DeviceState) -> None:
    """Let the tensors that share memory with the earlier device share that of `device`, which has the same values."""
    owner.memory.follow(partial(_find_trained, device))


def _find_trained(device: DeviceState, host: HostTensor) -> Optional[torch.Tensor]:
    # parts of a parameter have no memory in common
    is_trained = host.name in device.written and host.name not in device.groups
    return device.read_value(host.name) if is_trained else None


def fetch_other_owners(model: nn.Module, owner: Optional[Owner]) -> None:
    """Let the executors that own tensors of `model` fetch their trained values, all but that of `owner`."""
    for other in OrderedDict.fromkeys(other for host in host_tensors(model) for other in list_owners(host.tensor)):
        if other is not owner:
            fetch((other,))


class _WrappedModel(nn.Module):
    """The methods that `trainingModel` adds before the class of the user's model."""

    _poptorch_executor: Any
    _poptorch_original_class: Any

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch the trained weights if the host's are out of date; tell whether they were."""
        executor = self._poptorch_executor()
        if executor is None:
            return bool(self._poptorch_executor.take_left_weights())
        return bool(executor.copyWeightsToHostIfNeeded())

    def destroy(self) -> None:
        """Destroy the executor and restore the model's plain classes."""
        executor = self._poptorch_executor()
        if executor is not None:
            executor.destroy()
        else:
            unwrap_model(self)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights with plain classes; aliases stay aliases."""
        fetch((self._poptorch_executor,))
        kwargs.update(dict(zip(("destination", "prefix", "keep_vars"), args)))
        state = super().state_dict(**kwargs)
        if kwargs.get("keep_vars") or not isinstance(state, dict):
            return state
        # in place: it may be the caller's own dictionary
        plain: Dict[int, Any] = {}
        for name, value in list(state.items()):
            if find_owner(value) is not None:
                state[name] = plain.setdefault(id(value), make_plain(value, copy_data=False))
            elif isinstance(value, torch.Tensor) and type(value) is not torch.Tensor:
                state[name] = value.as_subclass(torch.Tensor)
        return state

    def __getattribute__(self, attribute: str) -> Any:
        if attribute in _WATCHED:
            fetch((self._poptorch_executor,))
        return super().__getattribute__(attribute)

    def __getattr__(self, attribute: str) -> Any:
        value = super().__getattr__(attribute)
        if isinstance(value, nn.Parameter):
            fetch((self._poptorch_executor,))
        return value

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        fetch((self._poptorch_executor,))
        reduced: Any = super().__reduce_ex__(protocol)
        function, arguments, *rest = reduced
        wrapper, original = type(self), self._poptorch_original_class
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            # pickle checks that this function gets the object's own class, which must not be stored
            return (copyreg._reconstructor, (original, object, None), *rest)  # type: ignore[attr-defined]
        return (function, tuple(original if item is wrapper else item for item in arguments), *rest)

    def __copy__(self) -> Any:
        fetch((self._poptorch_executor,))
        if hasattr(super(), "__copy__"):
            return super().__copy__()  # type: ignore[misc]
        return copy._reconstruct(self, None, *super().__reduce_ex__(4))  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        fetch((self._poptorch_executor,))
        if hasattr(super(), "__deepcopy__"):
            return super().__deepcopy__(memo)  # type: ignore[misc]
        return copy._reconstruct(self, memo, *super().__reduce_ex__(4))  # type: ignore[attr-defined]
