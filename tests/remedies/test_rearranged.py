"""Operators that rearrange elements, written with those that a device has."""

from __future__ import annotations

import pytest
import torch

from porting.remedies.entries import Fallback
from porting.remedies.rearranged import SUBSTITUTES, find_places, repeat_elements

COMPUTED = {substitute.name: substitute.compute for substitute in SUBSTITUTES}
X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_repeated_elements_are_torchs(dim):
    assert torch.equal(repeat_elements(X, 3, dim), torch.repeat_interleave(X, 3, dim))


def test_numbers_that_are_a_tensor_are_left_to_another():
    assert repeat_elements(X, torch.tensor([1, 2]), 0) is Fallback


@pytest.mark.parametrize("size", [0, 2, 12, 30])
def test_places_are_torchs_and_filled_up(size):
    mask = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 1]])

    assert torch.equal(find_places(mask, size=size), torch.nonzero_static(mask, size=size))


def test_every_substitute_has_a_name_and_a_target():
    assert len(COMPUTED) >= 5
    assert all(callable(substitute.target) or isinstance(substitute.target, str) for substitute in SUBSTITUTES)
