"""The operators know the shapes of their results without computing them, and compute what torch computes."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.engines.aot import convolution_operators as operators


def test_results_have_their_channels_innermost_and_torchs_shapes():
    how = ([1, 1], [1, 0], [1, 1], "winograd")
    with FakeTensorMode():
        images, filters, gradients = (torch.empty(shape) for shape in ((2, 32, 9, 7), (64, 32, 3, 3), (2, 64, 9, 5)))

        found = [
            operators.convolve(images, filters, None, *how),
            operators.find_image_gradient(gradients, filters, [9, 7], *how),
            operators.find_filter_gradient(gradients, images, [3, 3], *how),
        ]

    assert [value.shape for value in found] == [gradients.shape, images.shape, filters.shape]
    assert all(value.is_contiguous(memory_format=torch.channels_last) for value in found)


def test_a_filter_for_each_channel_has_one_input():
    how = ([1, 1], [2, 2], [2, 2], "depthwise")
    with FakeTensorMode():
        images, filters = torch.empty(2, 32, 9, 7), torch.empty(32, 1, 3, 3)

        result = operators.convolve(images, filters, None, *how)
        gradient = operators.find_filter_gradient(result, images, [3, 3], *how)

    assert (result.shape, gradient.shape) == (images.shape, filters.shape)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_images_in_the_usual_order_are_put_in_order_first():
    images, filters = torch.randn(2, 32, 9, 7), torch.randn(32, 32, 3, 3)

    found = operators.convolve(images, filters, None, [1, 1], [1, 1], [1, 1], "winograd")

    torch.testing.assert_close(found, torch.conv2d(images, filters, padding=1), rtol=1e-4, atol=1e-4)
