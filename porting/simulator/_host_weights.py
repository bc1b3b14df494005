"""The user's model while a training executor owns its weights: every look at them first fetches what was trained.

`trainingModel` changes the classes of the model, its parameters and its buffers in place to subclasses made for one
executor; they hold a weak reference to it and nothing else. `unwrap_model` gives the plain classes back.
"""

from __future__ import annotations

import copyreg
import weakref
from collections import OrderedDict
from copy import deepcopy
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

import torch
from torch import nn

from ..capture.module_state import host_tensors
from .errors import createPoptorchError

__all__ = ["is_wrapped", "restore_wrapper_if_necessary", "rewrap_model", "unwrap_model", "wrap_model"]

_EXECUTOR = "_poptorch_executor"
_ORIGINAL = "_poptorch_original_class"

# Attributes of the top module whose reading shows weights to the host.
_WATCHED = frozenset(["_buffers", "_parameters", "forward"])


def is_wrapped(model: Any) -> bool:
    """Tell whether a training executor owns the weights of `model`."""
    return isinstance(getattr(type(model), _EXECUTOR, None), weakref.ref)


def wrap_model(model: nn.Module, executor: Any) -> Tuple[Type[torch.Tensor], Type[torch.Tensor]]:
    """Exchange the classes of `model`, its parameters and buffers; return the classes made for those two.

    Raises `poptorch.Error` when a buffer is of a class of its own.
    """
    reference = weakref.ref(executor)
    parameter_class = _tensor_class(nn.Parameter, "PoptorchParameter", reference)
    buffer_class = _tensor_class(torch.Tensor, "PoptorchBuffer", reference)
    hosts = host_tensors(model)
    for host in hosts:
        if host.kind == "buffer" and type(host.tensor) is not torch.Tensor and not is_wrapped(host.tensor):
            raise createPoptorchError(f"All buffers must be an instance of torch.Tensor (Got {type(host.tensor)})")
    for host in hosts:
        host.tensor.__class__ = parameter_class if host.kind == "parameter" else buffer_class
    object.__setattr__(model, "__class__", _model_class(type(model), reference))
    return parameter_class, buffer_class


def unwrap_model(model: Any) -> Optional[Any]:
    """Give `model`, its parameters and buffers their plain classes back; return the executor that owned them."""
    if not is_wrapped(model):
        return None
    executor = getattr(type(model), _EXECUTOR)()
    object.__setattr__(model, "__class__", getattr(type(model), _ORIGINAL))
    for host in host_tensors(model):
        if is_wrapped(host.tensor):
            host.tensor.__class__ = nn.Parameter if host.kind == "parameter" else torch.Tensor
    return executor


def rewrap_model(model: nn.Module, executor: Any) -> None:
    """Wrap a model again that `unwrap_model` unwrapped."""
    wrap_model(model, executor)


def restore_wrapper_if_necessary(model: Any) -> Any:
    """Return `model`: pickles hold the plain classes, so nothing is left to restore."""
    return model


def _sync(reference: "weakref.ref[Any]") -> None:
    executor = reference()
    if executor is not None and executor._dirty_host_weights:
        executor.copyWeightsToHostIfNeeded()


def _tensor_class(base: Type[torch.Tensor], name: str, reference: "weakref.ref[Any]") -> Any:
    plain = base

    class Wrapped(base):  # type: ignore[misc, valid-type]
        _poptorch_executor = reference
        _poptorch_original_class = plain

        def __getattribute__(self, attribute: str) -> Any:
            _sync(reference)
            return super().__getattribute__(attribute)

        @classmethod
        def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _sync(reference)
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

        def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
            copied = _plain_tensor(self, copy=True)
            copied.__class__ = type(self)
            memo[id(self)] = copied
            return copied

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _plain_tensor(self, copy=False).__reduce_ex__(protocol)

        def __repr__(self, *, tensor_contents: Any = None) -> str:
            return repr(_plain_tensor(self, copy=False))

    Wrapped.__name__ = Wrapped.__qualname__ = name
    return Wrapped


def _plain_tensor(tensor: torch.Tensor, *, copy: bool) -> torch.Tensor:
    """Return a tensor of the plain class with the same memory, or with a copy of it."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        data = tensor.detach().clone() if copy else tensor.detach()
        original = getattr(type(tensor), _ORIGINAL)
        if original is nn.Parameter:
            return nn.Parameter(data.as_subclass(torch.Tensor), requires_grad=tensor.requires_grad)
        return data.as_subclass(torch.Tensor)


def _model_class(original: Type[nn.Module], reference: "weakref.ref[Any]") -> Any:
    class Wrapped(original):  # type: ignore[misc, valid-type]
        _poptorch_executor = reference
        _poptorch_original_class = original

        def copyWeightsToHostIfNeeded(self) -> bool:
            """Fetch the trained weights if the host's are out of date."""
            executor = reference()
            return executor.copyWeightsToHostIfNeeded() if executor is not None else False

        def destroy(self) -> None:
            """Destroy the executor and give the model its plain classes back."""
            executor = reference()
            if executor is not None:
                executor.destroy()

        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            """Return the weights with plain classes; aliases stay aliases."""
            _sync(reference)
            names = ("destination", "prefix", "keep_vars")
            kwargs.update(dict(zip(names, args)))
            return _plain_state(super().state_dict(**kwargs), keep_vars=bool(kwargs.get("keep_vars")))

        def __getattribute__(self, attribute: str) -> Any:
            if attribute in _WATCHED:
                _sync(reference)
            return super().__getattribute__(attribute)

        def __getattr__(self, attribute: str) -> Any:
            value = super().__getattr__(attribute)
            if isinstance(value, nn.Parameter):
                _sync(reference)
            return value

        def __reduce_ex__(self, protocol: Any) -> Any:
            _sync(reference)
            function, arguments, *rest = super().__reduce_ex__(protocol)
            wrapper = type(self)
            if function is copyreg.__newobj__:  # type: ignore[attr-defined]
                # pickle checks that this function gets the object's own class, which must not be stored
                return (copyreg._reconstructor, (original, object, None), *rest)  # type: ignore[attr-defined]
            return (function, tuple(original if item is wrapper else item for item in arguments), *rest)

        def __copy__(self) -> Any:
            _sync(reference)
            copied = original.__new__(type(self))
            object.__getattribute__(copied, "__dict__").update(object.__getattribute__(self, "__dict__"))
            return copied

        def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
            _sync(reference)
            copied = original.__new__(type(self))
            memo[id(self)] = copied
            object.__getattribute__(copied, "__dict__").update(
                deepcopy(object.__getattribute__(self, "__dict__"), memo)
            )
            return copied

    Wrapped.__name__ = f"Poptorch{original.__name__}"
    Wrapped.__qualname__ = f"Poptorch{original.__qualname__}"
    return Wrapped


def _plain_state(state: Any, *, keep_vars: bool) -> "OrderedDict[str, Any]":
    plain: Dict[int, Any] = {}
    result: "OrderedDict[str, Any]" = OrderedDict()
    for name, value in state.items():
        if is_wrapped(value):
            value = plain.setdefault(id(value), value if keep_vars else _plain_tensor(value, copy=False))
        elif isinstance(value, torch.Tensor) and type(value) is not torch.Tensor and not keep_vars:
            value = value.as_subclass(torch.Tensor)
        result[name] = value
    metadata = getattr(state, "_metadata", None)
    if metadata is not None:
        result._metadata = metadata  # type: ignore[attr-defined]
    return result
