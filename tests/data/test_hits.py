"""Images made of hits are those that pooling makes of the full image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.data.hits import Hits, make_dense_images


def some_hits(seed, *, height, width):
    random = np.random.default_rng(seed)
    pixels = random.permutation(height * width)[: random.integers(0, height * width + 1)]
    charges = random.random(len(pixels)).astype(np.float32)
    return Hits(pixels // width, pixels % width, charges, random.integers(0, 3, len(pixels)))


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(0, 2))
def test_halved_images_have_mean_charges_and_largest_labels(seed, downsample):
    planes = [some_hits([seed, plane], height=8, width=12) for plane in range(3)]
    full, full_labels = make_dense_images(planes, height=8, width=12)

    image, labels = make_dense_images(planes, height=8, width=12, downsample=downsample)

    pooled = torch.nn.functional.avg_pool2d(full, 2**downsample)
    torch.testing.assert_close(image, pooled)
    assert torch.equal(labels.double(), torch.nn.functional.max_pool2d(full_labels.double(), 2**downsample))


def test_a_hit_lies_in_the_row_of_its_tick_and_the_column_of_its_wire():
    hits = Hits(np.array([2]), np.array([5]), np.array([7.0]), np.array([1]))

    image, labels = make_dense_images([hits], height=4, width=8)

    assert image.nonzero().tolist() == labels.nonzero().tolist() == [[0, 2, 5]]
    assert (image.dtype, labels.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(("downsample", "message"), [(3, "12 pixels cannot be halved 3 times"), (-1, "is -1")])
def test_sides_that_cannot_be_halved_are_refused(downsample, message):
    with pytest.raises(ValueError, match=message):
        make_dense_images([], height=8, width=12, downsample=downsample)
