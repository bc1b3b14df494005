"""Padding, and convolutions whose padding is a word, without torch's operators for them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback
from porting.remedies.padded import convolve, pad_edges

IMAGE = torch.arange(24.0).reshape(1, 2, 3, 4)


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
@pytest.mark.parametrize("pad", [(1, 0, 0, 0), (2, 1, 1, 2), (0, 2, 2, 0)], ids=str)
def test_edges_are_torchs(mode, pad):
    assert torch.equal(pad_edges(IMAGE, pad, mode), F.pad(IMAGE, pad, mode))


def test_a_constant_is_left_to_the_device():
    assert pad_edges(IMAGE, (1, 1)) is Fallback
    assert pad_edges(IMAGE, (-1, 0), "replicate") is Fallback


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_padding_by_its_name_is_torchs(padding, size, dilation):
    weight = torch.linspace(-1, 1, 2 * size * size).reshape(1, 2, size, size)
    if padding == "valid" and (size - 1) * dilation >= 3:
        pytest.skip("the kernel is larger than the image")

    found = convolve(F.conv2d, IMAGE, weight, padding=padding, dilation=dilation)

    torch.testing.assert_close(found, F.conv2d(IMAGE, weight, padding=padding, dilation=dilation))


def test_a_padding_in_numbers_is_left_to_the_device():
    assert convolve(F.conv2d, IMAGE, torch.ones(1, 2, 1, 1), padding=0) is Fallback
