"""The shortest way from Python to an operator: torch's own binding for it, where that does exactly the same."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.fx.node import map_arg

from ...capture.device_operators import device_operator
from ...capture.operator_mode import OperatorMode
from ...capture.operator_schema import name_arguments
from ...torch_insides.modes import DisableTorchFunction
from ...torch_insides.operators import BINDINGS, OpOverload, call_of, enable_python_dispatcher, read_schema

__all__ = ["Call", "find_direct_call"]


class Call(NamedTuple):
    """A function and its arguments; nodes of the graph among them stand for their values."""

    function: Callable[..., Any]
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]


def find_direct_call(node: torch.fx.Node) -> Call:
    """Return the call that does what `node` does.

    Calling an operator by its overload goes through a generic interpreter of schemas. A binding is faster by about a
    microsecond, and is taken if it turns these arguments into the same call of the same overload, which is tried out
    once for each operator and kind of arguments. Not `contiguous`: its binding asks the tensor itself, which loads an
    algebra system where the tensor has no values.
    """
    operator: Any = node.target
    if not isinstance(operator, OpOverload):
        return Call(operator, tuple(node.args), dict(node.kwargs))
    special = device_operator(operator)
    if special is not None and special.choose is not None:
        return Call(special.choose(*node.args, **node.kwargs), tuple(node.args[:1]), {})
    if special is not None and special.run is not None:
        return Call(special.run, tuple(node.args), dict(node.kwargs))
    if operator.namespace == "aten" and operator is not torch.ops.aten.contiguous.default:
        candidates = list(_iter_candidates(operator, tuple(node.args), dict(node.kwargs)))
        # Two nodes of one kind call alike, so that one trial for each kind is enough.
        kind = (operator, _describe_kind(tuple(node.args)), _describe_kind(dict(node.kwargs)))
        if kind not in _chosen:
            _chosen[kind] = next((i for i, call in enumerate(candidates) if _is_same_call(call, node)), None)
        choice = _chosen[kind]
        if choice is not None:
            return candidates[choice]
    return Call(call_of(operator), tuple(node.args), dict(node.kwargs))


# The number of the candidate that was found to do the same, None for none.
_chosen: Dict[Any, Optional[int]] = {}


def _describe_kind(value: object) -> Any:
    """Describe an argument by what bindings tell apart: types, lengths, and which tensors could pass for numbers."""
    if isinstance(value, torch.fx.Node):
        tensor = value.meta["val"]
        return (type(tensor), tensor.dtype, tensor.dim() == 0) if isinstance(tensor, torch.Tensor) else type(tensor)
    if isinstance(value, (tuple, list)):
        return (type(value), *map(_describe_kind, value))
    if isinstance(value, dict):
        return tuple((name, _describe_kind(item)) for name, item in value.items())
    return value if isinstance(value, str) else type(value)


def _iter_candidates(operator: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Iterator[Call]:
    """Name the bindings called like `operator`, with these arguments and with defaults spelt out."""
    positional = [argument for argument in read_schema(operator).arguments if not argument.kwarg_only]
    all_args = (*args, *(kwargs.get(argument.name, argument.default_value) for argument in positional[len(args) :]))
    other_kwargs = {name: value for name, value in kwargs.items() if name not in {a.name for a in positional}}
    for bindings in BINDINGS:
        function = getattr(bindings, operator.overloadpacket.__name__, None)
        if function is not None:
            yield Call(function, args, kwargs)
            # Some bindings take an argument by position only, or have no default where the schema has one.
            yield Call(function, all_args, other_kwargs)


def _is_same_call(call: Call, node: torch.fx.Node) -> bool:
    wanted_args, wanted_kwargs, args, kwargs = map_arg(
        (node.args, node.kwargs, call.args, call.kwargs), lambda used: used.meta["val"]
    )
    try:
        # The listener stops the call at the dispatcher. What a binding made of its arguments is seen; nothing is
        # computed.
        with DisableTorchFunction(), enable_python_dispatcher(), _Listener():
            call.function(*args, **kwargs)
    except _CaughtCall as caught:
        operator, heard_args, heard_kwargs = caught.args
        return operator is node.target and _are_same(
            name_arguments(operator, heard_args, heard_kwargs), name_arguments(operator, wanted_args, wanted_kwargs)
        )
    except (TypeError, ValueError, RuntimeError):
        return False  # this binding wants its arguments in another form
    return False


class _CaughtCall(Exception):  # noqa: N818 - it is no error, it ends a trial
    """Carries the operator and the arguments of the first call that reaches the dispatcher."""


class _Listener(OperatorMode):
    """Stops the first operator before anything happens."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        raise _CaughtCall(func, args, kwargs or {})


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(_are_same, one, other))
    # `1 == 1.0 == True` would hide a binding that changes the type of a scalar
    return type(one) is type(other) and bool(one == other)
