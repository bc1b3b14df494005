"""Farthest point sampling and nearest points, on the device and on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.simulator._operators.point_sets import num_sampled


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
    assert num_sampled([0, 3, 4], 0.5) == [2, 1]


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
