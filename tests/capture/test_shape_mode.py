"""Tensors without values need torch's compiler only where torch's own rules are asked."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.capture.shape_mode import UNKNOWN, ShapeMode, in_order_of

aten = torch.ops.aten


def test_a_tensor_has_shape_type_and_strides():
    tensor = ShapeMode().make_empty([2, 3], dtype=torch.float16, strides=(1, 2))

    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device.type) == (
        (2, 3),
        (1, 2),
        torch.float16,
        "cpu",
    )


def test_torchs_own_rules_work_on_the_results_of_ours():
    mode = ShapeMode()
    result = mode.result_of(aten.relu.default, (mode.make_empty([2, 3], dtype=torch.float32),), {})

    with mode:
        assert torch.cumsum(result, 1).shape == (2, 3)


def test_our_rules_work_on_the_results_of_torchs_own():
    mode = ShapeMode()
    with mode:
        made = torch.ones(2, 3).cumsum(0)

    view = mode.result_of(aten.view.default, (made, [6]), {})

    assert view.untyped_storage()._cdata == made.untyped_storage()._cdata


@pytest.mark.parametrize("mode", [ShapeMode(), FakeTensorMode()])
def test_a_tensor_in_another_order_shares_its_memory(mode):
    with mode:
        tensor = torch.empty(2, 3)

    turned = in_order_of(tensor, (1, 2))

    assert (tuple(turned.shape), turned.stride()) == ((2, 3), (1, 2))
    assert turned.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def test_what_an_operator_turned_in_place_is_seen():
    mode = ShapeMode()
    tensor = mode.make_empty([2, 3], dtype=torch.float32)
    with mode:
        tensor.t_()

    assert mode.result_of(aten.view.default, (tensor, [6]), {}) is UNKNOWN


def test_tensors_of_other_modes_are_not_known():
    foreign = ShapeMode().make_empty([2], dtype=torch.float32)

    assert ShapeMode().result_of(aten.relu.default, (foreign,), {}) is UNKNOWN
    assert ShapeMode().result_of(aten.relu.default, (torch.ones(2),), {}) is UNKNOWN


def test_a_cast_to_the_type_that_a_tensor_has_is_the_tensor():
    mode = ShapeMode()
    tensor = mode.make_empty([2], dtype=torch.float32)

    assert mode.result_of(aten.to.dtype, (tensor, torch.float32), {}) is tensor
    assert mode.result_of(aten.to.dtype, (tensor, torch.float16), {}).dtype == torch.float16


LOADED_DURING_CAPTURE = """
import sys, torch
from torch import nn
from porting.capture import capture_step

plain = torch.tensor, torch.cond
seen = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._dynamo":
            seen.append((torch.tensor, torch.cond) == plain)

class Model(nn.Module):
    def forward(self, x):
        seen.append("torch._dynamo" in sys.modules)
        return x.cumsum(0)

sys.meta_path.insert(0, Watch())
graph = capture_step(Model(), [torch.ones(3)], mode="inference")
print(seen, [operator.operator for operator in graph.operators], (torch.tensor, torch.cond) == plain)
"""


@pytest.mark.slow
def test_a_compiler_that_is_loaded_in_the_middle_of_a_capture_sees_torch_as_it_is():
    done = subprocess.run([sys.executable, "-c", LOADED_DURING_CAPTURE], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[False, True] ['aten.cumsum.default'] True", done.stderr
