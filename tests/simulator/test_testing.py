"""`allclose` compares tensors in nested tuples and lists."""

from __future__ import annotations

import pytest
import torch

from porting.simulator.testing import allclose


@pytest.mark.parametrize(
    ("ref", "other", "expected"),
    [
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.ones(2) + 1e-9, True),
        (torch.ones(2), torch.zeros(2), False),
        ((torch.ones(2), [torch.zeros(1)]), (torch.ones(2), [torch.zeros(1)]), True),
        ((torch.ones(2), [torch.zeros(1)]), (torch.ones(2), [torch.ones(1)]), False),
        ([torch.ones(2)], (torch.ones(2),), False),
        ((torch.ones(2),), (torch.ones(2), torch.ones(2)), False),
        ((), (), True),
        (("text", torch.ones(1)), ("text", torch.ones(1)), True),
    ],
    ids=["equal", "close", "different", "nested", "nested different", "types", "lengths", "empty", "text"],
)
def test_structures_are_compared_tensor_by_tensor(ref, other, expected):
    assert allclose(ref, other) is expected


def test_other_values_are_taken_for_containers():
    with pytest.raises(TypeError):
        allclose(1, 1)
