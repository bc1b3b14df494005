"""What stands in for torch's functions of many tensors gives the same numbers, to the last bit."""

from __future__ import annotations

import pytest
import torch

from porting.torch_insides.optimizers import call_each, foreach

NAMES = ["add_", "addcdiv_", "addcmul_", "copy_", "div_", "lerp_", "mul_", "sqrt_", "add", "addcmul", "div", "norm"]
ARGUMENTS = {
    "add_": [(1.5,), ("tensors",)],
    "addcdiv_": [("tensors", "tensors", 0.3), ("tensors", "tensors", [0.1, 0.2, 0.3])],
    "addcmul_": [("tensors", "tensors", 0.3)],
    "copy_": [("tensors",)],
    "div_": [(3.0,), ("tensors",), ([3.0, 4.0, 5.0],)],
    "lerp_": [("tensors", 0.1)],
    "mul_": [(3.0,), ("tensors",)],
    "sqrt_": [()],
    "add": [(1e-8,)],
    "addcmul": [("tensors", "tensors", -1.0)],
    "div": [([3.0, 4.0, 5.0],)],
    "norm": [()],
}


def make_tensors():
    return [torch.rand(size) + 0.5 for size in (3, 40, 1)]


@pytest.mark.parametrize(("name", "given"), [(name, given) for name, all_of in ARGUMENTS.items() for given in all_of])
def test_one_by_one_is_all_at_once(name, given):
    tensors = make_tensors()
    copies = [tensor.clone() for tensor in tensors]
    arguments = [make_tensors() if argument == "tensors" else argument for argument in given]

    at_once = getattr(foreach, name)(tensors, *arguments)
    one_by_one = call_each(name)(copies, *arguments)

    expected, found = (tensors, copies) if name.endswith("_") else (at_once, one_by_one)
    assert all(torch.equal(one, other) for one, other in zip(expected, found))
