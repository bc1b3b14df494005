"""Register Python implementations of custom operators, in place of those that programs compile for the IPU."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch.nn.functional import leaky_relu

__all__ = ["CustomOp", "find_custom_op", "make_list", "register_custom_op"]

Tensors = Sequence[torch.Tensor]
Inputs = List[torch.Tensor]
Attributes = Mapping[str, Any]
Forward = Callable[[Inputs, Attributes], Union[torch.Tensor, Tensors]]
Backward = Callable[[Inputs, Inputs, Inputs, Attributes], Union[None, torch.Tensor, Sequence[Optional[torch.Tensor]]]]

_IMPLEMENTATIONS: Dict[Tuple[str, str, int], CustomOp] = {}


def register_custom_op(
    name: str, domain: str, version: int = 1, *, forward: Forward, backward: Optional[Backward] = None
) -> None:
    """Let `poptorch.custom_op(inputs, name, domain, version, ...)` run `forward` on the simulated device.

    `forward(inputs, attributes)` gets a list of tensors and the attributes, and returns a tensor or a sequence of
    tensors, new ones. Unless `backward` is given it is differentiated by autograd. `backward(inputs, outputs,
    gradients, attributes)` gets the gradients of the loss by each output and returns those by each input: a tensor
    for a single input, or a sequence, in which None stands for no gradient. Registering an operator again replaces its
    implementation, also for models that are compiled already. Raises TypeError for what cannot be called.

    >>> register_custom_op("Cube", "com.acme", 1, forward=lambda inputs, attributes: inputs[0] ** 3)
    """
    if not callable(forward) or not (backward is None or callable(backward)):
        raise TypeError("forward must be a function, and backward a function or None")
    _IMPLEMENTATIONS[(name, domain, int(version))] = CustomOp(forward, backward)


def find_custom_op(name: str, domain: str, version: int) -> Optional[CustomOp]:
    """Return the registered implementation of an operator, or None.

    The operators of PopTorch's own examples are there without being registered.
    """
    key = (name, domain, version)
    # on first use, so that a program's own operator of that name comes first
    if key not in _IMPLEMENTATIONS and key in _EXAMPLE_OPS:
        register_custom_op(*key, forward=_EXAMPLE_OPS[key])
    return _IMPLEMENTATIONS.get(key)


class CustomOp:
    """A registered operator: called with inputs and attributes it returns the list of outputs, differentiable."""

    def __init__(self, forward: Forward, backward: Optional[Backward]) -> None:
        """Keep the functions."""
        self.forward = forward
        self.backward = backward

    def __call__(self, inputs: Tensors, attributes: Attributes) -> List[torch.Tensor]:
        """Run the operator on tensors with values."""
        # autograd knows the operators that `forward` is made of, and needs no help where nothing is differentiated
        if self.backward is None or not any(tensor.requires_grad for tensor in inputs):
            return make_list(self.forward(list(inputs), attributes))
        return list(_WithOwnBackward.apply(self, attributes, *inputs))


class _WithOwnBackward(torch.autograd.Function):
    """Runs `forward` of a custom operator and differentiates it with its `backward`."""

    @staticmethod
    def forward(
        context: Any, operator: CustomOp, attributes: Attributes, *inputs: torch.Tensor
    ) -> Tuple[torch.Tensor, ...]:
        outputs = make_list(operator.forward(list(inputs), attributes))
        context.operator, context.attributes, context.num_inputs = operator, attributes, len(inputs)
        context.save_for_backward(*inputs, *outputs)
        return tuple(outputs)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        saved, num_inputs = list(context.saved_tensors), context.num_inputs
        backward = context.operator.backward
        result = backward(saved[:num_inputs], saved[num_inputs:], list(gradients), context.attributes)
        by_input = [result] if result is None or isinstance(result, torch.Tensor) else list(result)
        # nothing by the operator and its attributes
        return (None, None, *by_input)


def make_list(result: object) -> List[Any]:
    """Return the values of `result` as a list, also if it is one alone.

    >>> make_list(1), make_list((1, 2))
    ([1], [1, 2])
    """
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _cube_and_add(inputs: Inputs, _attributes: Attributes) -> Inputs:
    cube = inputs[0] ** 3
    return [cube + inputs[1], cube]


def _add_vector(inputs: Inputs, given: Attributes) -> torch.Tensor:
    return inputs[0] + torch.tensor(given["vec"], dtype=inputs[0].dtype)


def _reduce_tensor(tensor: torch.Tensor, reduction: str) -> torch.Tensor:
    return tensor.mean() if reduction == "mean" else tensor.sum()


_MANY_ATTRIBUTES: Dict[str, Any] = {
    "float_one": 1.0,
    "float_minus_two": -2.0,
    "int_zero": 0,
    "int_minus_five": -5,
    "floats_one_two_three": [1.0, 2.0, 3.0],
    "floats_minus_one_two_three": [-1.0, -2.0, -3.0],
    "ints_one_two_three": [1, 2, 3],
    "ints_minus_one_two_three": [-1, -2, -3],
    "a_string": "string with quotes and slash \" ' \\ end",
    "strs": ["abc", "def", "ghi"],
}


def _check_many_attributes(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    # as text, in which 1 and 1.0 differ
    given, wanted = (json.dumps(dict(one), sort_keys=True) for one in (attributes, _MANY_ATTRIBUTES))
    return inputs[0] + 1 if given == wanted else inputs[0].clone()


# The operators of PopTorch's own examples, which run without their C++ sources: by name, domain and version.
_EXAMPLE_OPS: Dict[Tuple[str, str, int], Forward] = {
    ("Cube", "com.acme", 1): _cube_and_add,
    ("LeakyRelu", "com.acme", 1): lambda inputs, given: leaky_relu(inputs[0], given.get("alpha", 0.01)),
    ("AddScalarFloat", "test.poptorch", 1): lambda inputs, given: inputs[0] + given["scalar"],
    ("AddScalarInt", "test.poptorch", 1): lambda inputs, given: inputs[0] + given["scalar"],
    ("AddScalarVecFloat", "test.poptorch", 1): _add_vector,
    ("AddScalarVecInt", "test.poptorch", 1): _add_vector,
    ("AddVecScalarMulFloat", "test.poptorch", 1): lambda inputs, given: _add_vector(inputs, given) * given["scalar"],
    ("ReduceOp", "test.poptorch", 1): lambda inputs, given: _reduce_tensor(inputs[0], given["reduction"]),
    ("ThreeReduceOp", "test.poptorch", 1): lambda inputs, given: list(map(_reduce_tensor, inputs, given["reductions"])),
    ("ManyAttributeOp", "test.poptorch", 1): _check_many_attributes,
}
