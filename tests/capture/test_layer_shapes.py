"""The rules for layers give the shapes that the layers themselves have, whatever their settings are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from porting.capture.shape_mode import UNKNOWN, ShapeMode

aten = torch.ops.aten


def find_shape(operator, *shapes, others=()):
    """Return the shape that the rule gives, or UNKNOWN."""
    mode = ShapeMode()
    tensors = tuple(mode.make_empty(shape, dtype=torch.float32, strides=None) for shape in shapes)
    result = mode.result_of(operator, (*tensors, *others), {})
    return result if result is UNKNOWN else tuple(result.shape)


@given(
    size=st.integers(1, 12),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
def test_a_convolution_has_the_size_that_torch_gives_it(size, kernel, stride, padding, dilation):
    assume(size + 2 * padding > dilation * (kernel - 1))
    x, weight = torch.ones(2, 3, size), torch.ones(4, 3, kernel)
    settings = ([stride], [padding], [dilation])

    found = find_shape(aten.conv1d.default, x.shape, weight.shape, others=(None, *settings))

    assert found == tuple(aten.conv1d.default(x, weight, None, *settings).shape)


@given(
    size=st.integers(2, 12),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padded=st.booleans(),
    ceil=st.booleans(),
)
def test_pooling_has_the_size_that_torch_gives_it(size, kernel, stride, padded, ceil):
    padding = kernel // 2 if padded else 0
    assume(size + 2 * padding >= kernel)
    x = torch.ones(2, 3, size, size)
    settings = ([kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], ceil)

    found = find_shape(aten.max_pool2d.default, x.shape, others=settings)

    assert found == tuple(aten.max_pool2d.default(x, *settings).shape)


@pytest.mark.parametrize("batch", [(), (5,), (2, 5)])
def test_a_linear_layer_changes_the_last_size_alone(batch):
    assert find_shape(aten.linear.default, (*batch, 3), (4, 3), (4,)) == (*batch, 4)


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [(aten.linear.default, [(2, 5), (4, 3)]), (aten.conv2d.default, [(2, 3, 2, 2), (4, 3, 3, 3)])],
)
def test_what_does_not_fit_is_left_to_torch(operator, shapes):
    assert find_shape(operator, *shapes) is UNKNOWN
