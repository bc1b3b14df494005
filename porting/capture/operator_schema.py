"""Read what the schemas of ATen operators say of arguments, and go through those inside of lists.

A schema tells which arguments an operator writes to, which results are arguments, and what to rename.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.fx.node import Target

from ..support.function_modes import Args, Kwargs
from ..torch_insides.operators import read_schema
from .device_tensor import DeviceTensor

__all__ = [
    "READS_VALUES",
    "change_arguments",
    "declared_written_arguments",
    "device_tensors",
    "list_leaves",
    "map_leaves",
    "name_arguments",
    "operator_name",
    "replace_numbers",
    "result_argument",
    "written_arguments",
]

# CPU implementations of these read values to check them, though their output shapes do not depend on any.
READS_VALUES: FrozenSet[str] = frozenset(["ctc_loss", "cov", "corrcoef"])

# Buffers that these operators update without saying so in their schema: (flag argument, updated arguments).
_UNDECLARED_WRITES = {"batch_norm": (5, (3, 4)), "instance_norm": (5, (3, 4))}


def operator_name(operator: Any) -> str:
    """Return the name of `operator` without its namespace and overload.

    >>> import torch
    >>> operator_name(torch.ops.aten.add.Tensor)
    'add'
    """
    return str(operator.overloadpacket.__name__)


def name_arguments(operator: Target, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the arguments of a call of `operator` by name, defaults included.

    >>> import torch
    >>> name_arguments(torch.ops.aten.flatten.using_ints, ("x", 1), {})
    {'self': 'x', 'start_dim': 1, 'end_dim': -1}
    """
    named = {argument.name: argument.default_value for argument in read_schema(operator).arguments}
    return {**named, **dict(zip(named, args)), **kwargs}


def replace_numbers(operator: Target, args: Sequence[Any], make: Callable[[torch.Tensor], Any]) -> List[Any]:
    """Return arguments by position with what `make` makes of the number, for each that stands in a tensor's place.

    >>> replace_numbers(torch.ops.aten.mul.Tensor, ("x", 2), str), replace_numbers(torch.ops.aten.pow.int, (3, 2), str)
    (['x', 'tensor(2, dtype=torch.int32)'], [3, 2])
    """
    return [
        make(_make_number(value)) if type(value) in (int, float) and str(argument.type) == "Tensor" else value
        for argument, value in zip(read_schema(operator).arguments, args)
    ]


def _make_number(value: float) -> torch.Tensor:
    is_integer = type(value) is int and abs(value) < 2**31
    return torch.tensor(value, dtype=torch.int32 if is_integer else torch.float32)


def written_arguments(operator: Target, args: Args, kwargs: Kwargs) -> List[Any]:
    """List the values of the arguments that `operator` changes in place.

    >>> import torch
    >>> written_arguments(torch.ops.aten.add_.Tensor, ("x", "y"), {})
    ['x']
    """
    flag, positions = _UNDECLARED_WRITES.get(operator_name(operator), (0, ()))
    undeclared = [args[position] for position in positions] if positions and len(args) > flag and args[flag] else []
    return [*undeclared, *declared_written_arguments(operator, args, kwargs)]


def declared_written_arguments(operator: Target, args: Args, kwargs: Kwargs) -> List[Any]:
    """List the values of the arguments that `operator` changes in place and says so: no running statistics.

    >>> import torch
    >>> declared_written_arguments(torch.ops.aten.copy_.default, ("x", "y"), {})
    ['x']
    """
    return [value for _info, value in _iter_written(operator, args, kwargs)]


def result_argument(operator: Target, index: int, args: Args, kwargs: Kwargs) -> Optional[Any]:
    """Return the argument that an in-place or `out=` operator hands back as result number `index`, or None.

    >>> import torch
    >>> result_argument(torch.ops.aten.add_.Tensor, 0, ("x", "y"), {})
    'x'
    """
    # most operators write to nothing, and this is asked for each result
    if not _declared_writes(operator):
        return None
    returns = read_schema(operator).returns
    alias = returns[index].alias_info if index < len(returns) else None
    if alias is None or not alias.is_write:
        return None
    # a schema names the memory of an argument and of the result that it is with one letter, as in `Tensor(a!)`
    written = _iter_written(operator, args, kwargs)
    return next((value for info, value in written if info.before_set == alias.before_set), None)


# Schemas are objects of C++ that are slow to read, and this is asked several times for each operator.
@functools.lru_cache(maxsize=None)
def _declared_writes(operator: Target) -> List[Tuple[int, str, Any]]:
    """List position, name and alias of the arguments that the schema says are written to."""
    arguments = [(argument.alias_info, argument.name) for argument in read_schema(operator).arguments]
    return [(i, name, info) for i, (info, name) in enumerate(arguments) if info is not None and info.is_write]


def _iter_written(operator: Target, args: Args, kwargs: Kwargs) -> Iterator[Tuple[Any, Any]]:
    """Pair the aliases of the arguments that are written to with their values, as far as they are given."""
    for position, name, info in _declared_writes(operator):
        if position < len(args):
            yield info, args[position]
        elif name in kwargs:
            yield info, kwargs[name]


@functools.lru_cache(maxsize=None)
def _collect_positions(operator: Target) -> Dict[str, int]:
    return {argument.name: position for position, argument in enumerate(read_schema(operator).arguments)}


def change_arguments(
    operator: Target, args: Args, kwargs: Kwargs, names: Sequence[str], change: Callable[[Any], Any]
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Apply `change` to the arguments called `names`, where they are given.

    >>> import torch
    >>> change_arguments(torch.ops.aten.gather.default, ("x", 1, "i"), {}, ["index"], str.upper)
    (('x', 1, 'I'), {})
    """
    if not names:
        return args, kwargs
    positions = _collect_positions(operator)
    for name in names:
        position = positions.get(name, len(args))
        if position < len(args):
            args = (*args[:position], change(args[position]), *args[position + 1 :])
        elif name in kwargs:
            kwargs = {**kwargs, name: change(kwargs[name])}
    return args, kwargs


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply `function` to all that is no tuple, list or dictionary itself; torch's tree functions do much more.

    >>> map_leaves(str, ([1, 2], {"dim": None}))
    (['1', '2'], {'dim': 'None'})
    """
    kind = type(value)
    if kind is tuple:
        return tuple([map_leaves(function, item) for item in value])
    if kind is list:
        return [map_leaves(function, item) for item in value]
    if kind is dict:
        return {key: map_leaves(function, item) for key, item in value.items()}
    return function(value)


def list_leaves(value: object) -> List[Any]:
    """List all that `map_leaves` would replace, in the same order.

    >>> list_leaves(([1, 2], {"dim": None}))
    [1, 2, None]
    """
    found: List[Any] = []
    _add_leaves(value, found)
    return found


def _add_leaves(value: Any, found: List[Any]) -> None:
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not tuple and kind is not list:
        found.append(value)
        return
    for item in value:
        _add_leaves(item, found)


def device_tensors(value: object) -> List[DeviceTensor]:
    """List the device tensors among the leaves."""
    return [leaf for leaf in list_leaves(value) if isinstance(leaf, DeviceTensor)]
