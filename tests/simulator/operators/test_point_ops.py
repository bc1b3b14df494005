"""Farthest point sampling and nearest points, on the device and on the CPU."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from porting.simulator import Error
from porting.simulator._operators.point_ops import _count_sampled, fps, nearest

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


# on the device


class Function(nn.Module):
    """A module whose `forward` is `function`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


LINE = torch.tensor([[0.0], [1.0], [5.0], [4.0], [10.0], [10.5], [19.0]])


def test_each_set_is_sampled_from_its_first_point_outwards(poptorch):
    def sample(points):
        return poptorch.fps(points, [0, 4, 7], ratio=0.5)

    result = poptorch.inferenceModel(Function(sample))(LINE)

    assert result.tolist() == [0, 2, 4, 6]
    assert result.dtype == torch.int32
    assert torch.equal(sample(LINE), result.long())


def test_all_points_are_taken_at_a_ratio_of_one(poptorch):
    assert sorted(poptorch.fps(LINE, [0, 7], ratio=1.0).tolist()) == list(range(7))


def test_points_may_have_several_dimensions(poptorch):
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])

    assert poptorch.fps(square, [0, 4], 0.5).tolist() == [0, 3]


def test_a_random_start_is_within_its_set_and_varies(poptorch):
    options = poptorch.Options().randomSeed(1)
    model = poptorch.inferenceModel(Function(lambda points: poptorch.fps(points, [0, 4, 7], 0.25, True)), options)

    firsts = [model(LINE).tolist() for _ in range(20)]

    assert all(0 <= first < 4 <= second < 7 for first, second in firsts)
    assert len({first for first, _second in firsts}) > 1


def test_shares_are_rounded_up():
    assert _count_sampled([0, 3, 4], 0.5) == [2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], [0, 1]), "`fps` must take a torch.tensor input"),
        ((LINE, (0, 7)), "`ptr` must be a list of integers."),
        ((LINE, [0, 7.0]), "`ptr` must be a list of integers."),
        ((LINE, [0]), "`ptr` must containt at least 2 elements."),
        ((LINE, [0, 7], 1), "`ratio` must be of float type"),
        ((LINE, [0, 7], 0.5, 1), "`random_start` must be of bool type"),
    ],
)
def test_arguments_of_sampling_are_checked(poptorch, arguments, message):
    with pytest.raises(poptorch.Error, match=message):
        poptorch.fps(*arguments)


X = torch.tensor([[0.0], [9.0], [4.0]])
Y = torch.tensor([[8.0], [1.0], [3.0], [0.0]])


def test_the_nearest_row_of_all(poptorch):
    result = poptorch.inferenceModel(Function(poptorch.nearest))(X, Y)

    assert result.tolist() == [3, 0, 2]
    assert torch.equal(poptorch.nearest(X, Y), result.long())


@pytest.mark.parametrize("batch_x", [[0, 0, 1], torch.tensor([0, 0, 1])])
@pytest.mark.parametrize("batch_y", [[0, 0, 1, 1], torch.tensor([0, 0, 1, 1])])
def test_only_rows_of_the_same_batch_are_compared(poptorch, batch_x, batch_y):
    on_device = poptorch.inferenceModel(Function(lambda x, y: poptorch.nearest(x, y, _on(batch_x), _on(batch_y))))

    assert on_device(X, Y).tolist() == [1, 0, 2]
    assert poptorch.nearest(X, Y, batch_x, batch_y).tolist() == [1, 0, 2]


def _on(batch):
    return batch.to("ipu") if isinstance(batch, torch.Tensor) else batch


def test_only_tensors_have_nearest_rows(poptorch):
    with pytest.raises(poptorch.Error, match="`nearest` must take a torch.tensor `[xy]` input"):
        poptorch.nearest(X, [1])
