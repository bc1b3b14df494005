"""The custom operators of PopTorch's own examples, so that those run without their C++ sources."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Tuple

import torch
from torch.nn.functional import leaky_relu

__all__ = ["EXAMPLE_OPS"]

Inputs = List[torch.Tensor]
Attributes = Mapping[str, Any]


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


# Implementations by name, domain and version.
EXAMPLE_OPS: Dict[Tuple[str, str, int], Callable[[Inputs, Attributes], Any]] = {
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
