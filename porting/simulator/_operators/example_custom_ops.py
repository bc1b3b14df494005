"""The custom operators of PopTorch's own examples, so that those run without their C++ sources."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Tuple

import torch

__all__ = ["EXAMPLE_OPS"]

Inputs = List[torch.Tensor]
Attributes = Mapping[str, Any]


def _cube(inputs: Inputs, _attributes: Attributes) -> Inputs:
    cube = inputs[0] ** 3
    return [cube + inputs[1], cube]


def _leaky_relu(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    return torch.nn.functional.leaky_relu(inputs[0], attributes.get("alpha", 0.01))


def _add_scalar(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    return inputs[0] + attributes["scalar"]


def _add_vector(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    return inputs[0] + torch.tensor(attributes["vec"], dtype=inputs[0].dtype)


def _add_vector_multiply(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    return _add_vector(inputs, attributes) * attributes["scalar"]


def _reduce(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    return _reduced(inputs[0], attributes["reduction"])


def _reduce_three(inputs: Inputs, attributes: Attributes) -> Inputs:
    return [_reduced(tensor, reduction) for tensor, reduction in zip(inputs, attributes["reductions"])]


def _reduced(tensor: torch.Tensor, reduction: str) -> torch.Tensor:
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


def _many_attributes(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    # as text, in which 1 and 1.0 differ
    given, wanted = (json.dumps(dict(one), sort_keys=True) for one in (attributes, _MANY_ATTRIBUTES))
    return inputs[0] + 1 if given == wanted else inputs[0].clone()


# Implementations by name, domain and version.
EXAMPLE_OPS: Dict[Tuple[str, str, int], Any] = {
    ("Cube", "com.acme", 1): _cube,
    ("LeakyRelu", "com.acme", 1): _leaky_relu,
    ("AddScalarFloat", "test.poptorch", 1): _add_scalar,
    ("AddScalarInt", "test.poptorch", 1): _add_scalar,
    ("AddScalarVecFloat", "test.poptorch", 1): _add_vector,
    ("AddScalarVecInt", "test.poptorch", 1): _add_vector,
    ("AddVecScalarMulFloat", "test.poptorch", 1): _add_vector_multiply,
    ("ReduceOp", "test.poptorch", 1): _reduce,
    ("ThreeReduceOp", "test.poptorch", 1): _reduce_three,
    ("ManyAttributeOp", "test.poptorch", 1): _many_attributes,
}
