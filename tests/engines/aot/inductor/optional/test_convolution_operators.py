"""The operators know the shapes of their results without computing them, and compute what torch computes."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.engines.aot.inductor.optional import convolution_operators as operators
from porting.engines.aot.inductor.optional.vector_width import has_wide_vectors


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


@pytest.mark.vectors
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_images_in_the_usual_order_are_put_in_order_first():
    images, filters = torch.randn(2, 32, 9, 7), torch.randn(32, 32, 3, 3)

    found = operators.convolve(images, filters, None, [1, 1], [1, 1], [1, 1], "winograd")

    torch.testing.assert_close(found, torch.conv2d(images, filters, padding=1), rtol=1e-4, atol=1e-4)


@pytest.mark.vectors
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(
    ("count", "ins", "outs", "rows", "columns", "window", "padding"),
    [
        (2, 8, 8, 9, 37, (3, 3), [1, 1]),
        (1, 8, 16, 5, 16, (3, 3), [0, 0]),
        (2, 16, 8, 7, 3, (3, 3), [2, 2]),
        (1, 24, 8, 20, 20, (5, 4), [2, 3]),
        (3, 8, 8, 4, 70, (2, 7), [1, 0]),
    ],
)
def test_few_channels_are_convolved_by_vectors_of_columns(
    num_threads, count, ins, outs, rows, columns, window, padding
):
    if not has_wide_vectors():
        pytest.skip("there is no AVX-512")
    torch.manual_seed(0)
    images, filters, bias = torch.randn(count, ins, rows, columns), torch.randn(outs, ins, *window), torch.randn(outs)
    how = ([1, 1], padding, [1, 1])
    result = torch.ops.aten.convolution(images, filters, bias, *how, False, [0, 0], 1)
    gradients = torch.randn_like(result)
    of_torch = torch.ops.aten.convolution_backward(
        gradients, images, filters, None, *how, False, [0, 0], 1, [True, True, False]
    )
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        found = [
            operators.convolve(images, filters, bias, *how, "planar"),
            operators.find_image_gradient(gradients, filters, [rows, columns], *how, "planar"),
            operators.find_filter_gradient(gradients, images, list(window), *how, "planar"),
        ]
    finally:
        torch.set_num_threads(before)

    torch.testing.assert_close(found, [result, *of_torch[:2]], rtol=1e-5, atol=1e-4)
