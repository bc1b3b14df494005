"""Where a layer may write its result in the place of what it gets, for all that anybody sees."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from porting import capture_step
from porting.analysis.last_readers import collect_last_readers

WAYS = {
    "chain": lambda linear, act, x: act(linear(x)) + 1,
    "twice": lambda linear, act, x: act(linear(act(linear(x)))),
    "residual": lambda linear, act, x: (h := linear(x)) + act(h),
    "unused result": lambda linear, act, x: [h := linear(x), act(h)][0],
    "earlier view": lambda linear, act, x: [h := linear(x), h[:1], act(h)][1],
    "view": lambda linear, act, x: act(linear(x).view(-1)),
    "input": lambda linear, act, x: act(x) + linear(x),
}


class Net(nn.Module):
    def __init__(self, run, *, inplace=False):
        super().__init__()
        self.linear, self.act, self.run = nn.Linear(4, 4), nn.ReLU(inplace=inplace), run

    def forward(self, x):
        return self.run(self.linear, self.act, x)


@pytest.mark.parametrize("name", WAYS)
def test_a_last_reader_has_the_same_result_in_place(name):
    x, model = torch.randn(8, 4), Net(WAYS[name])
    in_place = copy.deepcopy(model)
    in_place.act.inplace = True
    given = x.clone()

    with torch.no_grad():
        is_same = torch.equal(model(x), in_place(given)) and torch.equal(x, given)

    graph = capture_step(model, [x], mode="inference")
    assert ("act" in collect_last_readers(graph)) == is_same


def test_a_layer_that_writes_in_place_already_is_left_out():
    graph = capture_step(Net(WAYS["chain"], inplace=True), [torch.randn(8, 4)], mode="inference")

    assert "act" not in collect_last_readers(graph)
