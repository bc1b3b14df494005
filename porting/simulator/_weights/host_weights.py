"""The user's model while training executors own its weights: every look at them first fetches what was trained.

`trainingModel` changes the classes of the model, its parameters and its buffers in place to subclasses made for one
executor; they hold a weak reference to it and nothing else. A tensor that several wrapped models share belongs to all
of their executors. `unwrap_model` takes one executor's hold away again.
"""

from __future__ import annotations

import copy
import copyreg
from collections import OrderedDict
from typing import Any, Dict, Iterable, Optional, Type

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ...engines.calls.device_state import DeviceState
from ...host_tensors import host_tensors
from .._logging import cpp_log
from ..errors import createPoptorchError
from .weight_owners import ORIGINAL, OWNER, Owner, fetch, owned_class, owners_of, plain_class, plain_tensor

__all__ = [
    "download_weights",
    "fetch_other_owners",
    "is_wrapped",
    "is_wrapped_by",
    "owner_of",
    "plain_views",
    "refuse_wrapped",
    "restore_wrapper_if_necessary",
    "unwrap_model",
    "upload_weights",
    "weights_version",
    "wrap_model",
]

# Attributes of the top module whose reading shows weights to the host.
_WATCHED = frozenset(["_buffers", "_parameters", "forward"])


def is_wrapped(model: Any) -> bool:
    """Tell whether a training executor owns the weights of `model`."""
    return isinstance(getattr(type(model), OWNER, None), Owner)


def owner_of(model: Any) -> Optional[Any]:
    """Return the training executor that wrapped `model`, if there is one and it is still alive."""
    return getattr(type(model), OWNER)() if is_wrapped(model) else None


def is_wrapped_by(model: Any, owner: Owner) -> bool:
    """Tell whether it is `owner` for whom `model` was wrapped."""
    return getattr(type(model), OWNER, None) is owner


def weights_version(model: Any) -> Optional[int]:
    """Return how often the host got weights from the executor that wrapped `model`, even if that is gone by now."""
    return int(getattr(type(model), OWNER).version) if is_wrapped(model) else None


def refuse_wrapped(model: Any, executor: Any = None) -> None:
    """Raise RuntimeError if `model` is wrapped for training by another than `executor`."""
    if is_wrapped(model) and (executor is None or owner_of(model) is not executor):
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )


def wrap_model(model: nn.Module, owner: Owner) -> None:
    """Exchange the classes of `model`, its parameters and buffers for `owner`, who is alive.

    What is wrapped for it already stays so. Lazy parameters are left alone: wrap again when they have a value. Raises
    RuntimeError for a model that another executor wrapped and `poptorch.Error` for a buffer of a class of its own;
    nothing is changed then.
    """
    refuse_wrapped(model, owner())
    hosts = [host for host in host_tensors(model) if not is_lazy(host.tensor)]
    for host in hosts:
        if host.kind == "buffer" and plain_class(host.tensor) is not torch.Tensor:
            raise createPoptorchError(f"All buffers must be an instance of torch.Tensor (Got {type(host.tensor)})")
    for host in hosts:
        owners = owners_of(host.tensor)
        if owner not in owners:
            host.tensor.__class__ = owned_class(plain_class(host.tensor), (*owners, owner))
    if not is_wrapped(model):
        object.__setattr__(model, "__class__", _model_class(type(model), owner))


def unwrap_model(model: Any) -> Optional[Owner]:
    """Fetch what was trained, and take the owner's hold away from `model` and its tensors; return the owner."""
    if not is_wrapped(model):
        return None
    owner: Owner = getattr(type(model), OWNER)
    fetch((owner,))
    object.__setattr__(model, "__class__", getattr(type(model), ORIGINAL))
    for host in host_tensors(model):
        owners = owners_of(host.tensor)
        if is_wrapped(host.tensor):
            left = tuple(other for other in owners if other is not owner)
            host.tensor.__class__ = owned_class(plain_class(host.tensor), left)
    return owner


def restore_wrapper_if_necessary(model: Any) -> Any:
    """Return `model`: pickles hold the plain classes, so nothing is left to restore."""
    return model


def plain_views(model: nn.Module) -> Dict[str, torch.Tensor]:
    """Return the parameters and buffers of `model` by first name, as plain tensors in the same memory.

    Nothing is fetched from a device.
    """
    with torch._C.DisableTorchFunctionSubclass():
        return {host.name: torch.Tensor.detach(host.tensor) for host in host_tensors(model)}


def upload_weights(model: nn.Module, device: DeviceState, *, names: Optional[Iterable[str]] = None) -> None:
    """Copy the host's parameters and buffers, or only `names`, to `device`.

    Raises `poptorch.Error`, and copies nothing, if the model has lost one of them.
    """
    views = plain_views(model)
    wanted = set(device.names if names is None else names)
    if wanted - views.keys():
        lost = ", ".join(sorted(wanted - views.keys()))
        raise createPoptorchError(f"The model was compiled with {lost} and no longer has it")
    cpp_log("debug", "Writing weights from host to IPU memory.")
    device.upload(views, names=wanted)


def download_weights(model: nn.Module, device: DeviceState) -> None:
    """Copy the parameters and buffers of `device` into those that the model still has."""
    cpp_log("debug", "Writing weights from IPU to host.")
    if device.groups:
        _make_room(model, device)
    views = plain_views(model)
    device.download(views)
    shared = {host.name for host in host_tensors(model) if len(owners_of(host.tensor)) > 1}
    # Another executor may have trained what is constant here.
    device.restore({name: view for name, view in views.items() if name not in shared})


def _make_room(model: nn.Module, device: DeviceState) -> None:
    """Give the host's parameters the shapes in which replicas return theirs: one row for each, or for each group."""
    for host in host_tensors(model):
        if host.name in device.groups:
            value = device.value(host.name)
            with torch._C.DisableTorchFunctionSubclass():
                if host.tensor.shape != value.shape:
                    host.tensor.data = torch.empty_like(value, dtype=host.tensor.dtype)


def fetch_other_owners(model: nn.Module, owner: Optional[Owner]) -> None:
    """Let the executors that own tensors of `model` fetch what they trained, all but that of `owner`."""
    for other in OrderedDict.fromkeys(other for host in host_tensors(model) for other in owners_of(host.tensor)):
        if other is not owner:
            fetch((other,))


class _WrappedModel(nn.Module):
    """What `trainingModel` adds in front of the class of the user's model."""

    _poptorch_executor: Any
    _poptorch_original_class: Any

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch the trained weights if the host's are out of date; tell whether they were."""
        executor = owner_of(self)
        if executor is None:
            return bool(getattr(type(self), OWNER).take_left_weights())
        return bool(executor.copyWeightsToHostIfNeeded())

    def destroy(self) -> None:
        """Destroy the executor and give the model its plain classes back."""
        executor = owner_of(self)
        if executor is not None:
            executor.destroy()
        else:
            unwrap_model(self)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights with plain classes; aliases stay aliases."""
        _fetch_own(self)
        kwargs.update(dict(zip(("destination", "prefix", "keep_vars"), args)))
        state = super().state_dict(**kwargs)
        return state if kwargs.get("keep_vars") or not isinstance(state, dict) else _make_plain(state)

    def __getattribute__(self, attribute: str) -> Any:
        if attribute in _WATCHED:
            _fetch_own(self)
        return super().__getattribute__(attribute)

    def __getattr__(self, attribute: str) -> Any:
        value = super().__getattr__(attribute)
        if isinstance(value, nn.Parameter):
            _fetch_own(self)
        return value

    def __reduce_ex__(self, protocol: Any) -> Any:
        _fetch_own(self)
        reduced: Any = super().__reduce_ex__(protocol)
        function, arguments, *rest = reduced
        wrapper, original = type(self), self._poptorch_original_class
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            # pickle checks that this function gets the object's own class, which must not be stored
            return (copyreg._reconstructor, (original, object, None), *rest)  # type: ignore[attr-defined]
        return (function, tuple(original if item is wrapper else item for item in arguments), *rest)

    def __copy__(self) -> Any:
        _fetch_own(self)
        if hasattr(super(), "__copy__"):
            return super().__copy__()  # type: ignore[misc]
        return copy._reconstruct(self, None, *super().__reduce_ex__(4))  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        _fetch_own(self)
        if hasattr(super(), "__deepcopy__"):
            return super().__deepcopy__(memo)  # type: ignore[misc]
        return copy._reconstruct(self, memo, *super().__reduce_ex__(4))  # type: ignore[attr-defined]


def _fetch_own(model: nn.Module) -> None:
    fetch((getattr(type(model), OWNER),))


def _model_class(original: Type[nn.Module], owner: Owner) -> Any:
    members = {
        OWNER: owner,
        ORIGINAL: original,
        "__module__": original.__module__,
        "__qualname__": f"Poptorch{original.__qualname__}",
        "__doc__": original.__doc__,
    }
    return type(f"Poptorch{original.__name__}", (_WrappedModel, original), members)


def _make_plain(state: Any) -> Any:
    """Exchange the tensors of a state for plain ones, in place: it may be the caller's own dictionary."""
    plain: Dict[int, Any] = {}
    for name, value in list(state.items()):
        if is_wrapped(value):
            state[name] = plain.setdefault(id(value), plain_tensor(value, copy_data=False))
        elif isinstance(value, torch.Tensor) and type(value) is not torch.Tensor:
            state[name] = value.as_subclass(torch.Tensor)
    return state
