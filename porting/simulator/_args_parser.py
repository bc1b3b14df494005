"""Bind the arguments of a call to `forward`'s parameters and compare them with those that were compiled.

The executor uses it in every call. Argument types of the user's own are registered once, for all models.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Type

import torch

from ..capture import StepGraph
from ..capture.device_tensor import DeviceTensor
from ..structure import Structure, StructureAdapter, flatten_tensors, outline, rebuild, register_structure_adapter
from .errors import createPoptorchError

__all__ = [
    "ArgsParser",
    "BoundArguments",
    "CompiledSignature",
    "ICustomArgParser",
    "contains_dict",
    "hand_back",
    "registerCustomArgParser",
    "without_memory",
]

_MISMATCH_ADVICE = (
    "\nThis error occurred because the inputs passed at runtime don't match the inputs used to compile the model. To "
    "recompile the model for the new inputs create a new inferenceModel / trainingModel wrapper or call destroy() on "
    "the curent one and try again."
)


class TensorSpec(NamedTuple):
    """The class, type and shape of a tensor argument that was compiled."""

    cls: Type[torch.Tensor]
    dtype: torch.dtype
    shape: torch.Size


@dataclass
class BoundArguments:
    """The arguments of one call: `positional` values with their `names`, and those given by keyword."""

    names: List[str]
    positional: List[Any]
    named: Dict[str, Any] = field(default_factory=dict)

    def list_tensors(self, like: Optional[BoundArguments] = None) -> List[torch.Tensor]:
        """List all tensors, dictionaries in the key order of the arguments `like`."""
        pattern = (like.positional, like.named) if like is not None else None
        return flatten_tensors((self.positional, self.named), like=pattern)

    def replace_tensors(self, tensors: Sequence[Any]) -> BoundArguments:
        """Return the same arguments with `values` in place of the tensors."""
        positional, named = rebuild((self.positional, self.named), tensors)
        return BoundArguments(list(self.names), positional, named)


class ArgsParser:
    """Binds arguments to the parameters of a `forward`; its errors have PopTorch's messages."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature of `function` or of a model's `forward`; raises TypeError if it cannot be called."""
        if not callable(function):
            raise TypeError(f"Expected a torch.nn.Module or a callable but got {type(function)}")
        try:
            signature = inspect.signature(getattr(function, "forward", function))
            self._parameters = list(signature.parameters.values())
        except (TypeError, ValueError):
            self._parameters = [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        kinds = [parameter.kind for parameter in self._parameters]
        self._has_args = inspect.Parameter.VAR_POSITIONAL in kinds
        self._has_kwargs = inspect.Parameter.VAR_KEYWORD in kinds
        self._names = [p.name for p in self._parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._positions = [p.name for p in self._parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundArguments:
        """Return the arguments in the order of the parameters, defaults included.

        Raises AssertionError for too many, unknown or doubled arguments and `poptorch.Error` for a missing one.
        """
        if not kwargs and len(args) == len(self._positions) == len(self._parameters):
            # the ordinary call: one argument for each parameter, in their order
            return BoundArguments(self._names, list(args))
        # PopTorch looks at the names before it binds: several faults of a call have one first message.
        self._check_names(args, kwargs)
        bound = BoundArguments([], [])
        remaining, left = list(args), dict(kwargs)
        for parameter in self._parameters:
            if parameter.kind == parameter.VAR_POSITIONAL:
                bound.names += [f"*{parameter.name}[{index}]" for index in range(len(remaining))]
                bound.positional += remaining
                remaining = []
            elif parameter.kind == parameter.VAR_KEYWORD:
                bound.named.update(left)
            else:
                value = self._find_value(parameter, remaining, left)
                # PopTorch passes by name only what follows `*args`: a `forward` with a bare `*` gets more than it takes
                if parameter.kind == parameter.KEYWORD_ONLY and self._has_args:
                    bound.named[parameter.name] = value
                else:
                    bound.names.append(parameter.name)
                    bound.positional.append(value)
        return bound

    def _find_value(self, parameter: inspect.Parameter, remaining: List[Any], left: Dict[str, Any]) -> Any:
        """Return the value passed for `parameter`, and remove it from the `remaining` or from the named, `left`."""
        if remaining and parameter.kind != parameter.KEYWORD_ONLY:
            if parameter.name in left:
                raise AssertionError(f"Parameter {parameter.name} was passed more than once")
            return remaining.pop(0)
        if parameter.name in left:
            return left.pop(parameter.name)
        if parameter.default is parameter.empty:
            raise createPoptorchError(f"Mandatory parameter {parameter.name} missing")
        return parameter.default

    def _check_names(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        count = len(args) + len(kwargs)
        if not self._has_args and not self._has_kwargs and count > len(self._names):
            raise AssertionError(
                f"Too many arguments provided: expected {self._names} ({len(self._names)}) but got {count}"
            )
        if not self._has_args and len(args) > len(self._positions):
            # superfluous arguments would be dropped silently
            raise AssertionError(
                f"Too many arguments provided: expected {self._positions} ({len(self._positions)}) but got {len(args)}"
            )
        for name in kwargs:
            # the missing space is PopTorch's
            if not self._has_kwargs and name not in self._names:
                raise AssertionError(f"{name} is not a valid parameter.Allowed values are {self._names}")


class CompiledSignature:
    """The arguments that a model was compiled for: later calls must have the same shapes, types and other values.

    `arguments` has tensors without memory in place of the original ones. Objects of types with a parser of their own
    are kept as they are.
    """

    def __init__(self, bound: BoundArguments) -> None:
        """Remember the arguments of the first call."""
        tensors = bound.list_tensors()
        self._specs = [TensorSpec(type(tensor), tensor.dtype, tensor.shape) for tensor in tensors]
        # On the meta device: an executor that kept a batch alive would double the memory of a program.
        positional, named = outline((bound.positional, bound.named), without_memory)
        self.arguments = BoundArguments(list(bound.names), positional, named)

    def make_example(self) -> BoundArguments:
        """Return arguments of the same form, whose tensors are zeros."""
        tensors = []
        for spec in self._specs:
            zeros = torch.zeros(spec.shape, dtype=spec.dtype)
            is_parameter = issubclass(spec.cls, torch.nn.Parameter)
            # `as_subclass` would share the memory and lose that a parameter asks for a gradient
            tensors.append(
                torch.nn.Parameter(zeros, requires_grad=False) if is_parameter else zeros.as_subclass(spec.cls)
            )
        return self.arguments.replace_tensors(tensors)

    def check(self, actual: BoundArguments) -> None:
        """Raise `poptorch.Error` for the first difference of `actual`, with its name and the expected value."""
        expected = self.arguments
        if len(expected.positional) != len(actual.positional):
            raise _make_error(
                f"Number of positional arguments mismatch: expected {len(expected.positional)} arguments but got "
                f"{len(actual.positional)}."
            )
        # One specification for each tensor, in the order in which a walk through the arguments meets them.
        specs = iter(self._specs)
        for name, wanted, value in zip(expected.names, expected.positional, actual.positional):
            _compare_values(name, wanted, value, specs)
        _compare_keys("named arguments", expected.named, actual.named)
        for name, wanted in expected.named.items():
            _compare_values(name, wanted, actual.named[name], specs)


class ICustomArgParser(StructureAdapter, abc.ABC):
    """Finds the tensors in values of a type, and builds such values from other tensors."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Structure) -> Iterator[torch.Tensor]:
        """Yield the tensors of `struct` in a fixed order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Structure, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """Build an object like `original_structure`, which takes its tensors from `tensor_iterator` with `next`."""


def registerCustomArgParser(arg_data_type: type, arg_parser: Optional[ICustomArgParser]) -> None:
    """Let `arg_parser`, an `ICustomArgParser`, find the tensors in values of `arg_data_type`; None removes it."""
    if arg_parser is not None and not isinstance(arg_parser, ICustomArgParser):
        raise createPoptorchError("arg_parser must inherit from ICustomArgParser")
    register_structure_adapter(arg_data_type, arg_parser)


def contains_dict(value: object) -> bool:
    """Tell whether there is a dictionary in nested tuples and lists."""
    return isinstance(value, dict) or (isinstance(value, (list, tuple)) and any(map(contains_dict, value)))


def without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape and type that holds no values."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _compare_values(name: str, expected: Any, actual: Any, specs: Iterator[TensorSpec]) -> None:
    if isinstance(expected, torch.Tensor):
        _compare_tensor(name, next(specs), actual)
        return
    # A subclass may unpack or compare in another way, and PopTorch refuses it, too.
    if type(expected) is not type(actual):
        raise _make_error(f"Type mismatch for {name}: expected {type(expected)} but got {type(actual)}.")
    if isinstance(expected, tuple):
        if len(expected) != len(actual):
            raise _make_error(f"Length mismatch for {name}: expected {len(expected)} elements but got {len(actual)}.")
        for index, (wanted, value) in enumerate(zip(expected, actual)):
            _compare_values(f"{name}[{index}]", wanted, value, specs)
    elif isinstance(expected, Mapping):
        _compare_keys(name, expected, actual)
        for key, wanted in expected.items():
            _compare_values(f"{name}[{key}]", wanted, actual[key], specs)
    else:
        _compare_other(name, expected, actual, specs)


def _compare_tensor(name: str, expected: TensorSpec, actual: object) -> None:
    if type(actual) is not expected.cls:
        raise _make_error(f"Type mismatch for {name}: expected {expected.cls} but got {type(actual)}.")
    if actual.dtype != expected.dtype:
        raise _make_error(f"Data type mismatch for {name}: expected {expected.dtype} but got {actual.dtype}.")
    if actual.shape != expected.shape:
        raise _make_error(f"Shape mismatch for {name}: expected {expected.shape} but got {actual.shape}.")


def _compare_keys(name: str, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
    extra = [str(key) for key in actual if key not in expected]
    missing = [str(key) for key in expected if key not in actual]
    if not extra and not missing:
        return
    parts = [f"Unexpected arguments: {', '.join(extra)}."] if extra else []
    parts += [f"Missing arguments: {', '.join(missing)}."] if missing else []
    raise _make_error(f"Keys mismatch for {name}: {' '.join(parts)}")


def _compare_other(name: str, expected: object, actual: object, specs: Iterator[TensorSpec]) -> None:
    """Compare lists and types with a parser of their own by their tensors, like a tuple; anything else by equality."""
    num_expected = len(flatten_tensors(expected))
    try:
        tensors = flatten_tensors(actual, like=expected)
    except KeyError as error:
        raise _make_error(f"Keys mismatch for {name}: Missing arguments: {error.args[0]}.") from None
    if num_expected or tensors:
        if num_expected != len(tensors):
            raise _make_error(f"Length mismatch for {name}: expected {num_expected} elements but got {len(tensors)}.")
        for index, tensor in enumerate(tensors):
            _compare_tensor(f"{name}[{index}]", next(specs), tensor)
    elif expected is not actual:
        differs = expected != actual
        # Arrays compare element by element.
        if differs.any() if hasattr(differs, "any") else differs:
            raise _make_error(f"Value mismatch for {name}: expected {expected} but got {actual}.")


def _make_error(message: str) -> Exception:
    return createPoptorchError(message + _MISMATCH_ADVICE)


def hand_back(graph: StepGraph, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Any:
    """Update the caller's `inputs`, and return the outputs nested as `forward` returned them."""
    # the outputs, then the inputs that the graph wrote into; other values stay as they were traced
    outputs, written = results[: len(graph.outputs)], results[len(graph.outputs) :]
    for index, value in zip(sorted(graph.mutated_inputs), written):
        # PopTorch updates the tensor on the device, which is a copy if the input was not contiguous.
        if inputs[index].is_contiguous():
            with torch.no_grad():
                inputs[index].copy_(value)
    for tensor in outputs:
        tensor.backward = _refuse_backward  # type: ignore[method-assign]
    return rebuild(graph.output_structure, outputs, replaces=lambda leaf: isinstance(leaf, DeviceTensor))


def _refuse_backward(*_args: object, **_kwargs: object) -> None:
    raise createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
