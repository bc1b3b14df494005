"""Inputs that the device makes up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.engines.calls.call_tensors import make_synthetic_inputs

LIKE = [torch.full((1000,), 7.0), torch.full((2, 3), 7.0, dtype=torch.half), torch.full((4,), 7), torch.ones(2) > 0]


@pytest.mark.parametrize("kind", ["zeros", "normal", "uniform"])
def test_shapes_and_types_are_kept(kind):
    made = make_synthetic_inputs(LIKE, kind)

    assert [(tensor.shape, tensor.dtype) for tensor in made] == [(tensor.shape, tensor.dtype) for tensor in LIKE]
    assert not made[2].any()
    assert not made[3].any()


def test_floats_are_distributed_as_asked():
    zeros, normal, uniform = (make_synthetic_inputs(LIKE, kind)[0] for kind in ("zeros", "normal", "uniform"))

    assert not zeros.any()
    assert 0.9 < normal.std() < 1.1
    assert 0.5 < uniform.abs().max() <= 1.0


def test_the_same_numbers_come_each_time_and_the_global_stream_is_left_alone():
    before = torch.get_rng_state()

    first, second = make_synthetic_inputs(LIKE, "normal"), make_synthetic_inputs(LIKE, "normal")

    assert all(torch.equal(one, other) for one, other in zip(first, second))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_call_uses_them_instead_of_the_hosts(device):
    on_device = device(nn.Identity(), torch.ones(2), mode="inference")

    assert on_device.run(torch.ones(2), synthetic="zeros")[0].tolist() == [0.0, 0.0]
