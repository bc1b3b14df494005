"""Mark host tensors as owned by training executors: any use of one first fetches the trained values.

A tensor is owned by the class it gets, a subclass of its own class with the owners in it. Tensors that several models
share have several owners, which fetch in the order in which they took it.
"""

from __future__ import annotations

import copy
import sys
import weakref
from typing import Any, Callable, Dict, Optional, Sequence, SupportsIndex, Tuple, Type

import torch
from torch import nn

from ...engines.calls.device_state import DeviceState
from ...support.function_modes import Args, Kwargs
from ...torch_insides.modes import DisableTorchFunctionSubclass
from .host_memory import HostMemory

__all__ = ["ORIGINAL", "OWNER", "Owner", "fetch", "find_plain_class", "list_owners", "make_owned_class", "make_plain"]

# Attributes of the classes made here and of wrapped models' classes.
OWNER = "_poptorch_executor"
ORIGINAL = "_poptorch_original_class"
_OWNERS = "_poptorch_executors"

_MAKES_PARAMETER = nn.Parameter.__new__.__code__


class Owner(weakref.ref):
    """A weak reference to a training executor, and its trained values if it was collected before they were fetched.

    `classes` are those of the tensors that it owns, by their own class and all owners; `version` counts how often the
    host got weights from it; `is_ahead` means that it has trained since. `memory` knows which of the tensors share the
    device's memory. `left_behind` are the device's state of a collected executor and the host's tensors for it; they
    are copied when one is read.
    """

    def __init__(self, executor: object) -> None:
        """Refer to `executor`."""
        super().__init__(executor)  # type: ignore[call-arg]
        self.classes: Dict[Any, Any] = {}
        self.version = 0
        self.is_ahead = False
        self.memory = HostMemory()
        self.left_behind: Optional[Tuple[DeviceState, Dict[str, torch.Tensor]]] = None

    def take_left_weights(self) -> bool:
        """Copy the weights of a collected executor into the host's tensors; tell whether there were any."""
        if self.left_behind is None:
            return False
        # removed first: copying reads the tensors, which would call this again
        (device, tensors), self.left_behind = self.left_behind, None
        with torch.inference_mode(False), DisableTorchFunctionSubclass():
            self.memory.end_sharing(keeps_memory=True)
            device.download({name: torch.Tensor.detach(tensor) for name, tensor in tensors.items()})
        self.version += 1
        return True


def fetch(owners: Tuple[Owner, ...]) -> None:
    """Bring the host's tensors up to date with those of `owners` that trained since the last time."""
    for owner in owners:
        executor = owner()
        if executor is None:
            owner.take_left_weights()
        elif owner.is_ahead:
            executor.copyWeightsToHostIfNeeded()


def list_owners(tensor: torch.Tensor) -> Tuple[Owner, ...]:
    """Return the owners of `tensor` that are alive or have left weights, in the order in which they took it."""
    owners: Tuple[Owner, ...] = getattr(type(tensor), _OWNERS, ())
    return tuple(owner for owner in owners if owner() is not None or owner.left_behind is not None)


def find_plain_class(tensor: torch.Tensor) -> Type[torch.Tensor]:
    """Return the class that `tensor` has without its owners."""
    return getattr(type(tensor), ORIGINAL, type(tensor))


def make_plain(tensor: torch.Tensor, *, copy_data: bool) -> torch.Tensor:
    """Return a tensor of the plain class with the same memory and attributes, or with a copy of the memory alone."""
    original = find_plain_class(tensor)
    with DisableTorchFunctionSubclass(), torch.no_grad():
        data = tensor.detach().clone() if copy_data else tensor.detach()
        if not issubclass(original, nn.Parameter):
            plain = data.as_subclass(original)
        else:
            # made as a plain parameter first: the constructor of a derived class may want more arguments
            plain = nn.Parameter(data.as_subclass(torch.Tensor), requires_grad=tensor.requires_grad)
            if original is not nn.Parameter:
                plain.__class__ = original
    if not copy_data:
        plain.__dict__.update(object.__getattribute__(tensor, "__dict__"))
    return plain


def make_owned_class(plain: Type[torch.Tensor], owners: Tuple[Owner, ...]) -> Type[torch.Tensor]:
    """Return the class for tensors of the class `plain` that `owners` own; `plain` itself if there are none."""
    if not owners:
        return plain
    # One class for all tensors of the same owners: `type(a) is type(b)` must hold for tensors of one model.
    classes = owners[-1].classes
    if (plain, owners) not in classes:
        classes[plain, owners] = _define_owned_class(plain, owners)
    return classes[plain, owners]


def _deep_copy(tensor: torch.Tensor, memo: Dict[int, Any]) -> Any:
    """Copy a tensor with owners, once for each `memo`; the copy has them too."""
    if id(tensor) not in memo:
        copied = memo[id(tensor)] = make_plain(tensor, copy_data=True)
        if not isinstance(copied, nn.Parameter):  # as torch does: copies of parameters lose their attributes
            copied.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
        copied.__class__ = type(tensor)
    return memo[id(tensor)]


def _detach_owned(tensor: torch.Tensor) -> torch.Tensor:
    """Detach a tensor with owners; the result has them too for `nn.Parameter(tensor)`, which insists on its class."""
    detached = find_plain_class(tensor).detach(tensor)
    if sys._getframe(1).f_code is _MAKES_PARAMETER:  # as parametrizations make one
        detached.__class__ = type(tensor)
    return detached


def _define_owned_class(plain: Type[torch.Tensor], owners: Tuple[Owner, ...]) -> Any:
    class Kind(type(plain)):  # type: ignore[misc]
        # tensors of any owners are as related as their plain classes, as `assert_close` needs them
        def __instancecheck__(cls, instance: object) -> bool:
            kind = type(instance)
            return super().__instancecheck__(instance) or (hasattr(kind, _OWNERS) and issubclass(kind, plain))

    read: Callable[[Any, str], Any] = plain.__getattribute__

    class Owned(plain, metaclass=Kind):  # type: ignore[misc, valid-type]
        _poptorch_executor = owners[-1]
        _poptorch_executors = owners
        _poptorch_original_class = plain

        detach = _detach_owned
        __deepcopy__ = _deep_copy

        def __getattribute__(self, attribute: str) -> Any:
            if attribute != "_is_param":  # which `isinstance(tensor, torch.nn.Parameter)` reads: no look at the value
                fetch(owners)
            return read(self, attribute)

        @classmethod
        def __torch_function__(
            cls, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
        ) -> Any:
            # Called for the first of several tensors, and operators such as `==` leave the others out of `types`.
            for kind in (*types, *map(type, args)):
                fetch(getattr(kind, _OWNERS, ()))
            with DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

        def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
            return make_plain(self, copy_data=False).__reduce_ex__(protocol)

        def __repr__(self, *, tensor_contents: object = None) -> str:
            return repr(make_plain(self, copy_data=False))

        def __format__(self, format_spec: str) -> str:
            return format(make_plain(self, copy_data=False), format_spec)

    name = "PoptorchParameter" if issubclass(plain, nn.Parameter) else "PoptorchBuffer"
    Owned.__name__ = Owned.__qualname__ = name
    return Owned
