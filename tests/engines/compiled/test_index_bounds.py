"""Bounds of labels and tokens are read off the graph, and a bad one is seen before anything is computed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.compiled.index_bounds import has_bad_index, list_index_bounds


def bounds_of(model, *example, loss):
    return list_index_bounds(capture_step(model, list(example), loss=loss, mode="training"))


class Words(nn.Module):
    """Looks `function(tokens)` up in a table of ten."""

    def __init__(self, function):
        super().__init__()
        self.table, self.function = nn.Embedding(10, 3), function

    def forward(self, tokens):
        return self.table(self.function(tokens)).sum(1)


def test_labels_are_classes_or_ignored():
    found = bounds_of(nn.Linear(3, 5), torch.ones(4, 3), torch.arange(4), loss=nn.CrossEntropyLoss(ignore_index=-1))

    assert found == ((1, 0, 5, -1),)


def test_labels_of_pixels_are_channels():
    loss = nn.CrossEntropyLoss()

    found = bounds_of(nn.Conv2d(1, 2, 1), torch.ones(1, 1, 3, 3), torch.zeros(1, 3, 3, dtype=torch.long), loss=loss)

    assert found == ((1, 0, 2, -100),)


def test_tokens_are_rows_of_the_table():
    tokens, labels = torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, dtype=torch.long)

    found = bounds_of(Words(lambda tokens: tokens.t().contiguous().t()), tokens, labels, loss=F.cross_entropy)

    assert found == ((0, 0, 10, None), (1, 0, 3, -100))


@pytest.mark.parametrize("function", [lambda x: x[:, 1:], lambda x: x + 1, lambda x: x.clamp(0, 9)])
def test_what_is_used_in_part_or_changed_has_no_bounds(function):
    tokens, labels = torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, dtype=torch.long)

    found = bounds_of(Words(function), tokens, labels, loss=F.cross_entropy)

    assert [number for number, *_ in found] == [1]


def test_probabilities_are_no_indices():
    assert bounds_of(nn.Linear(3, 5), torch.ones(4, 3), torch.ones(4, 5), loss=F.cross_entropy) == ()


@pytest.mark.parametrize(
    ("values", "is_bad"), [([0, 4], False), ([0, -100], False), ([5, 0], True), ([-1, 0], True), ([], False)]
)
def test_a_value_is_bad_if_it_is_neither_in_bounds_nor_ignored(values, is_bad):
    assert has_bad_index([torch.tensor(values, dtype=torch.int32)], [(0, 0, 5, -100)]) is is_bad
