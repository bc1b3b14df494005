"""Read the state of modules beside their weights: plain attributes, train modes, and parameters not made yet.

Captures, ports and preflights use it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .diagnostics import Finding, Place, Severity
from .host_tensors import walk_modules
from .structure import flatten_tensors

__all__ = [
    "NOT_THE_USERS",
    "AttributesBefore",
    "collect_plain_modules",
    "find_tensor",
    "is_hashed_by",
    "keep_attributes",
    "keep_train_modes",
    "materialise_lazy_modules",
    "switch_to_eval",
]

IsDeviceTensor = Callable[[torch.Tensor], bool]
PlaceOf = Callable[[nn.Module, str, torch.Tensor], Optional[Place]]

# the code that exchanges parameters restores the registries; torch's recurrent layers list their own in each `forward`
NOT_THE_USERS = frozenset(["_parameters", "_buffers", "_modules", "_flat_weights"])


@contextmanager
def keep_train_modes(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Restore the present train or eval mode of each of `modules` afterwards."""
    before = [(module, module.training) for module in modules]
    try:
        yield
    finally:
        for module, is_training in before:
            module.training = is_training


@contextmanager
def switch_to_eval(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Put `modules` into eval mode while the context lasts.

    The flags are set directly: a user's own `train()` may do more than switch a mode.
    """
    switched = list(modules)
    with keep_train_modes(switched):
        for module in switched:
            module.training = False
        yield


def collect_plain_modules(model: nn.Module) -> Dict[str, nn.Module]:
    """Return the modules of `model` by the prefix of their names, with those that a wrapper runs unregistered.

    Scripted modules are left out: their attributes are in C++.
    """
    found = walk_modules(model)
    behind = getattr(model, "_porting_model", None)
    if isinstance(behind, nn.Module):
        # its name is empty as the wrapper's is, whose place it takes: a wrapper keeps nothing
        found.append(("", behind))
    return {prefix: module for prefix, module in found if not isinstance(module, torch.jit.ScriptModule)}


class AttributesBefore:
    """The plain attributes that `module` had, to find those that hold a tensor of the device now.

    `prefix` precedes the names of attributes in messages.

    >>> module = nn.Identity()
    >>> before = AttributesBefore("encoder.", module, is_device_tensor=lambda tensor: True)
    >>> module.cache = [torch.ones(1)]
    >>> list(before.leftovers())
    ['cache']
    >>> before.restore()
    >>> hasattr(module, "cache")
    False
    """

    def __init__(self, prefix: str, module: nn.Module, *, is_device_tensor: IsDeviceTensor) -> None:
        self._prefix, self._module, self._is_device_tensor = prefix, module, is_device_tensor
        self._attributes = {name: value for name, value in vars(module).items() if name not in NOT_THE_USERS}
        containers = {name: value for name, value in self._attributes.items() if isinstance(value, (dict, list))}
        self._contents: Dict[str, Any] = {
            name: dict(value) if isinstance(value, dict) else list(value) for name, value in containers.items()
        }

    def leftovers(self) -> Dict[str, torch.Tensor]:
        """Return the device's tensors by the attributes that hold them, also in a container."""
        found: Dict[str, torch.Tensor] = {}
        for name, value in vars(self._module).items():
            is_same = value is self._attributes.get(name, self)
            # a module has a dozen registries of hooks, which are empty as a rule
            if is_same and isinstance(value, (dict, list)) and (value or self._contents[name]):
                is_same = _identify_items(value) == _identify_items(self._contents[name])
            if not is_same and name not in NOT_THE_USERS:
                tensor = find_tensor(value, self._is_device_tensor)
                if tensor is not None:
                    found[name] = tensor
        return found

    def restore(self) -> None:
        """Restore the attributes that hold leftovers."""
        for name in self.leftovers():
            if name not in self._attributes:
                del vars(self._module)[name]
                continue
            value = vars(self._module)[name] = self._attributes[name]
            if isinstance(value, dict):
                value.clear()
                value.update(self._contents[name])
            elif isinstance(value, list):
                value[:] = self._contents[name]

    def findings(self, place_of: PlaceOf) -> Iterator[Finding]:
        """Yield C014 for each leftover of the user's."""
        # torch's own hooks compute attributes anew before each `forward`: weight norm, pruning, ...
        leftovers = self.leftovers()
        hooks = vars(self._module)["_forward_pre_hooks"].values() if leftovers else ()
        computed_by_hooks = {str(getattr(hook, "name", getattr(hook, "_tensor_name", ""))) for hook in hooks}
        for name, tensor in leftovers.items():
            if name not in computed_by_hooks:
                yield make_leftover_finding(self._prefix + name, place_of(self._module, name, tensor))


@contextmanager
def keep_attributes(
    model: nn.Module,
    *,
    is_device_tensor: IsDeviceTensor,
    place_of: PlaceOf,
    report: Callable[[Finding], None],
) -> Iterator[None]:
    """Restore the attributes of all modules of `model` at the end of the context, and report C014 where it ends well.

    A value that a call keeps for the next one would otherwise be a tensor of a finished trace for every other
    executable, and for the host. `place_of` finds the line, given the module, the attribute and the tensor in it.
    """
    noted = [
        AttributesBefore(prefix, module, is_device_tensor=is_device_tensor)
        for prefix, module in collect_plain_modules(model).items()
    ]
    try:
        yield
        for before in noted:
            for finding in before.findings(place_of):
                report(finding)
    finally:
        for before in noted:
            before.restore()


def find_tensor(value: object, is_wanted: IsDeviceTensor) -> Optional[torch.Tensor]:
    """Return the first wanted tensor in `value`, which may be nested: an LSTM's state is a tuple of two tensors."""
    return next(filter(is_wanted, flatten_tensors(value)), None)


def make_leftover_finding(name: str, place: Optional[Place]) -> Finding:
    """Make the finding C014: the attribute `name` does not keep the value that `forward` put there."""
    return Finding(
        "C014",
        severity=Severity.WARNING,
        message=f"`forward` keeps a tensor in `self.{name}`, where it does not stay",
        place=place,
        label="this value exists on the device only, and only during the call",
        notes=("the attribute is as it was before `forward` ran",),
        help="return the tensor from `forward`; what must live from call to call belongs in a registered buffer",
    )


def _identify_items(container: Union[Dict[Any, Any], List[Any]]) -> Any:
    """Return the identities of what a container holds, to compare it with: tensors have no truth value."""
    if isinstance(container, dict):
        return {key: id(item) for key, item in container.items()}
    return [id(item) for item in container]


def materialise_lazy_modules(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Give lazy modules their parameters by one run of `forward` on the host, in eval mode and without gradients.

    Does nothing when `model` has no lazy tensor left. The modes of all modules are as before afterwards.

    >>> model = nn.LazyLinear(2)
    >>> materialise_lazy_modules(model, [torch.ones(1, 3)], {})
    >>> model.weight.shape
    torch.Size([2, 3])
    """
    if not any(is_lazy(tensor) for tensor in [*model.parameters(), *model.buffers()]):
        return
    with switch_to_eval(model.modules()), torch.no_grad():
        model(*args, **kwargs)


def is_hashed_by(module: nn.Module, value: object) -> bool:
    """Tell whether putting `module` into a set may have read `value`: the hash of a metric is that of its state."""
    return isinstance(value, torch.Tensor) and type(module).__hash__ is not nn.Module.__hash__
