"""The user's model while training executors own its weights: every look at them first fetches what was trained.

`trainingModel` changes the classes of the model, its parameters and its buffers in place to subclasses made for one
executor; they hold a weak reference to it and nothing else. A tensor that several wrapped models share belongs to all
of their executors. `unwrap_model` takes one executor's hold away again.
"""

from __future__ import annotations

import copy
import copyreg
import weakref
from collections import OrderedDict
from typing import Any, Callable, Dict, Optional, Tuple, Type

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..capture.module_state import host_tensors
from .errors import createPoptorchError

__all__ = [
    "fetch_other_owners",
    "is_wrapped",
    "owner_of",
    "plain_views",
    "refuse_wrapped",
    "restore_wrapper_if_necessary",
    "unwrap_model",
    "wrap_model",
]

_EXECUTOR = "_poptorch_executor"
_OWNERS = "_poptorch_executors"
_ORIGINAL = "_poptorch_original_class"

# Attributes of the top module whose reading shows weights to the host.
_WATCHED = frozenset(["_buffers", "_parameters", "forward"])


def is_wrapped(model: Any) -> bool:
    """Tell whether a training executor owns the weights of `model`."""
    return isinstance(getattr(type(model), _EXECUTOR, None), weakref.ref)


def owner_of(model: Any) -> Optional[Any]:
    """Return the training executor that wrapped `model`, if there is one and it is still alive."""
    return getattr(type(model), _EXECUTOR)() if is_wrapped(model) else None


def refuse_wrapped(model: Any, executor: Any = None) -> None:
    """Raise RuntimeError if `model` is wrapped for training by another than `executor`."""
    if is_wrapped(model) and (executor is None or owner_of(model) is not executor):
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )


def wrap_model(model: nn.Module, executor: Any) -> Tuple[Type[torch.Tensor], Type[torch.Tensor]]:
    """Exchange the classes of `model`, its parameters and buffers; return the classes for those two.

    What is wrapped for `executor` already stays so. Lazy parameters are left alone: wrap again when they have a value.
    Raises RuntimeError for a model that another executor wrapped and `poptorch.Error` for a buffer of a class of its
    own; nothing is changed then.
    """
    refuse_wrapped(model, executor)
    reference = weakref.ref(executor)
    hosts = [host for host in host_tensors(model) if not is_lazy(host.tensor)]
    for host in hosts:
        if host.kind == "buffer" and _plain_class(host.tensor) is not torch.Tensor:
            raise createPoptorchError(f"All buffers must be an instance of torch.Tensor (Got {type(host.tensor)})")
    classes = _classes.setdefault(executor, _TensorClasses())
    for host in hosts:
        owners = _owners(host.tensor)
        if reference not in owners:
            host.tensor.__class__ = classes.get(_plain_class(host.tensor), (*owners, reference))
    if not is_wrapped(model):
        object.__setattr__(model, "__class__", _model_class(type(model), reference))
    return classes.get(nn.Parameter, (reference,)), classes.get(torch.Tensor, (reference,))


def unwrap_model(model: Any) -> Optional[Any]:
    """Take the hold of the executor that wrapped `model` away from it and its tensors; return the executor."""
    if not is_wrapped(model):
        return None
    reference = getattr(type(model), _EXECUTOR)
    object.__setattr__(model, "__class__", getattr(type(model), _ORIGINAL))
    classes = _TensorClasses()
    for host in host_tensors(model):
        if is_wrapped(host.tensor):
            left = tuple(owner for owner in _owners(host.tensor) if owner is not reference)
            host.tensor.__class__ = classes.get(_plain_class(host.tensor), left)
    return reference()


def restore_wrapper_if_necessary(model: Any) -> Any:
    """Return `model`: pickles hold the plain classes, so nothing is left to restore."""
    return model


def plain_views(model: nn.Module) -> Dict[str, torch.Tensor]:
    """Return the parameters and buffers of `model` by first name, as plain tensors in the same memory.

    Nothing is fetched from a device.
    """
    with torch._C.DisableTorchFunctionSubclass():
        return {host.name: torch.Tensor.detach(host.tensor) for host in host_tensors(model)}


def fetch_other_owners(model: nn.Module, executor: Any) -> None:
    """Let the executors other than `executor` that own tensors of `model` fetch what they trained."""
    for owner in OrderedDict.fromkeys(owner for host in host_tensors(model) for owner in _owners(host.tensor)):
        if owner() is not executor:
            _fetch((owner,))


def _owners(tensor: torch.Tensor) -> Tuple[Any, ...]:
    """Return references to the living executors that own `tensor`, in the order in which they took it."""
    return tuple(owner for owner in getattr(type(tensor), _OWNERS, ()) if owner() is not None)


def _plain_class(tensor: torch.Tensor) -> Type[torch.Tensor]:
    return getattr(type(tensor), _ORIGINAL, type(tensor))


def _fetch(references: Tuple[Any, ...]) -> None:
    for reference in references:
        executor = reference()
        if executor is not None and executor._dirty_host_weights:
            executor.copyWeightsToHostIfNeeded()


class _TensorClasses:
    """The classes made for one wrapping, one for each plain class and set of owners."""

    def __init__(self) -> None:
        self._made: Dict[Any, Type[torch.Tensor]] = {}

    def get(self, plain: Type[torch.Tensor], owners: Tuple[Any, ...]) -> Type[torch.Tensor]:
        """Return the class of tensors that are `plain` without their `owners`."""
        if not owners:
            return plain
        if (plain, owners) not in self._made:
            self._made[plain, owners] = _tensor_class(plain, owners)
        return self._made[plain, owners]


_classes: "weakref.WeakKeyDictionary[Any, _TensorClasses]" = weakref.WeakKeyDictionary()


def _tensor_class(plain: Type[torch.Tensor], owners: Tuple[Any, ...]) -> Any:
    class Wrapped(plain):  # type: ignore[misc, valid-type]
        _poptorch_executors = owners
        _poptorch_executor = owners[-1]
        _poptorch_original_class = plain

        def __getattribute__(self, attribute: str) -> Any:
            _fetch(owners)
            return super().__getattribute__(attribute)

        @classmethod
        def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _fetch(owners)
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

        def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
            if id(self) not in memo:
                memo[id(self)] = _plain_tensor(self, copy_data=True)
                memo[id(self)].__class__ = type(self)
            return memo[id(self)]

        def __reduce_ex__(self, protocol: Any) -> Any:
            return _plain_tensor(self, copy_data=False).__reduce_ex__(protocol)

        def __repr__(self, *, tensor_contents: Any = None) -> str:
            return repr(_plain_tensor(self, copy_data=False))

    name = "PoptorchParameter" if issubclass(plain, nn.Parameter) else "PoptorchBuffer"
    Wrapped.__name__ = Wrapped.__qualname__ = name
    return Wrapped


def _plain_tensor(tensor: torch.Tensor, *, copy_data: bool) -> torch.Tensor:
    """Return a tensor of the plain class with the same memory, or with a copy of it."""
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        data = tensor.detach().clone() if copy_data else tensor.detach()
        original = _plain_class(tensor)
        if not issubclass(original, nn.Parameter):
            return data.as_subclass(original)
        parameter = nn.Parameter(data.as_subclass(torch.Tensor), requires_grad=tensor.requires_grad)
        if original is not nn.Parameter:
            parameter.__class__ = original
        return parameter


def _model_class(original: Type[nn.Module], reference: Any) -> Any:
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
            else:
                unwrap_model(self)

        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            """Return the weights with plain classes; aliases stay aliases."""
            _fetch((reference,))
            kwargs.update(dict(zip(("destination", "prefix", "keep_vars"), args)))
            return _plain_state(super().state_dict(**kwargs), keep_vars=bool(kwargs.get("keep_vars")))

        def __getattribute__(self, attribute: str) -> Any:
            if attribute in _WATCHED:
                _fetch((reference,))
            return super().__getattribute__(attribute)

        def __getattr__(self, attribute: str) -> Any:
            value = super().__getattr__(attribute)
            if isinstance(value, nn.Parameter):
                _fetch((reference,))
            return value

        def __reduce_ex__(self, protocol: Any) -> Any:
            _fetch((reference,))
            function, arguments, *rest = super().__reduce_ex__(protocol)
            wrapper = type(self)
            if function is copyreg.__newobj__:  # type: ignore[attr-defined]
                # pickle checks that this function gets the object's own class, which must not be stored
                return (copyreg._reconstructor, (original, object, None), *rest)  # type: ignore[attr-defined]
            return (function, tuple(original if item is wrapper else item for item in arguments), *rest)

        def __copy__(self) -> Any:
            _fetch((reference,))
            if hasattr(original, "__copy__"):
                return super().__copy__()
            return copy._reconstruct(self, None, *super().__reduce_ex__(4))  # type: ignore[attr-defined]

        def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
            _fetch((reference,))
            if hasattr(original, "__deepcopy__"):
                return super().__deepcopy__(memo)
            return copy._reconstruct(self, memo, *super().__reduce_ex__(4))  # type: ignore[attr-defined]

    Wrapped.__name__ = f"Poptorch{original.__name__}"
    Wrapped.__qualname__ = f"Poptorch{original.__qualname__}"
    return Wrapped


def _plain_state(state: Any, *, keep_vars: bool) -> "OrderedDict[str, Any]":
    plain: Dict[int, Any] = {}
    result: "OrderedDict[str, Any]" = OrderedDict()
    for name, value in state.items():
        if is_wrapped(value) and not keep_vars:
            value = plain.setdefault(id(value), _plain_tensor(value, copy_data=False))
        elif isinstance(value, torch.Tensor) and type(value) is not torch.Tensor and not keep_vars:
            value = value.as_subclass(torch.Tensor)
        result[name] = value
    metadata = getattr(state, "_metadata", None)
    if metadata is not None:
        result._metadata = metadata  # type: ignore[attr-defined]
    return result
