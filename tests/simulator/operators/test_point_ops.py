"""Operators on sets of points say what is wrong with their arguments, in PopTorch's words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.simulator import Error
from porting.simulator._operators.point_ops import fps, nearest

points = st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=2), min_size=1, max_size=8)


@given(points, points)
def test_the_nearest_point_is_at_the_smallest_distance(x, y):
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)

    found = nearest(x, y)

    distances = ((x[:, None] - y[None]) ** 2).sum(-1)
    assert torch.equal(distances[torch.arange(len(x)), found], distances.min(dim=1).values)


def test_batches_may_be_lists_or_tensors():
    x, y = torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [1.0], [2.0]])
    batch_x, batch_y = [0, 1], [0, 1, 1]

    as_lists = nearest(x, y, batch_x, batch_y)

    assert as_lists.tolist() == [0, 2]
    assert torch.equal(nearest(x, y, torch.tensor(batch_x), batch_y), as_lists)


@given(st.integers(1, 10), st.sampled_from([0.25, 0.5, 1.0]))
def test_a_share_of_the_points_is_sampled_and_none_twice(count, ratio):
    sampled = fps(torch.arange(float(count))[:, None], [0, count], ratio=ratio).tolist()

    assert len(set(sampled)) == len(sampled) == -(-count * ratio // 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], [0, 1]), "must take a torch.tensor"),
        ((torch.ones(2, 1), (0, 2)), "must be a list of integers"),
        ((torch.ones(2, 1), [0]), "at least 2 elements"),
        ((torch.ones(2, 1), [0, 2], 1), "must be of float type"),
        ((torch.ones(2, 1), [0, 2], 0.5, 1), "must be of bool type"),
    ],
)
def test_arguments_of_other_types_are_refused(arguments, message):
    with pytest.raises(Error, match=message):
        fps(*arguments)


def test_batches_of_another_type_are_refused_by_name():
    with pytest.raises(Error, match="`batch_y` is tuple"):
        nearest(torch.ones(1, 1), torch.ones(1, 1), [0], (0,))
