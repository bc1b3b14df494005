"""Pipelines on the hardware path: stages by names of modules, and blocks that a model begins itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.hardware.side_by_side import (
    assert_code,
    one_batch,
    port,
    sgd,
    small_net,
    train_in_parts_like_plain,
    train_ported,
)


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulation": 4, "stages": {"2": 1}},
        {"accumulation": 5, "stages": {"1": 1, "2": 0}},
        {"accumulation": 4, "stages": {"2": 1}, "recompute": ["0"]},
    ],
    ids=["two IPUs", "there and back", "recompute"],
)
def test_a_pipeline_trains_like_plain(settings):
    train_in_parts_like_plain(micro_batch=2, **settings)


class Looped(nn.Module):
    """Two cells that are called in turn, with the same weights each time."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.enter(x)
        for _turn in range(2):
            x = self.second(torch.relu(self.first(x)))
        return self.head(x)


@pytest.mark.parametrize("name", ["first", "first#1"])
def test_each_call_of_a_module_may_begin_a_stage(name):
    stages = {name: 0, "second#1": 1, "first#2": 0, "second#2": 1, "head": 2}

    train_in_parts_like_plain(make=Looped, micro_batch=1, accumulation=9, stages=stages)


def test_calls_begin_blocks_in_their_order_and_one_for_each_stage(monkeypatch):
    from poptorch import _options_impl

    begun = []
    begin = _options_impl._begin_ipu_block
    monkeypatch.setattr(_options_impl, "_begin_ipu_block", lambda *place: begun.append(place) or begin(*place))
    model = Looped()
    stages = {"first#1": 0, "second#1": 1, "first#2": 0, "second#2": 1, "head": 1}
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), micro_batch=1, accumulation=7, stages=stages)

    ported.compile(torch.randn(7, 4), torch.arange(7) % 3)

    # what precedes the first block is stage 0 on IPU 0
    assert [(stage, ipu) for stage, _phase, ipu in begun] == [(1, 1), (2, 0), (3, 1), (3, 1)]


@pytest.mark.parametrize("iterations", [1, 2])
def test_inference_is_pipelined_as_well(iterations):
    ported, _returned = train_in_parts_like_plain(
        micro_batch=2, accumulation=4, device_iterations=iterations, stages={"2": 1}
    )

    assert ported.inference()(torch.randn(2 * iterations, 4)).shape == (2 * iterations, 3)


def test_a_pipeline_that_is_not_filled_is_p008_and_an_unknown_module_p007():
    model = small_net()
    optimizer = sgd(model)

    assert_code("P008", lambda: port(model, nn.CrossEntropyLoss(), optimizer=optimizer, stages={"2": 1}))
    settings = {"accumulation": 4, "stages": {"nope": 1}}
    assert_code("P007", lambda: port(model, nn.CrossEntropyLoss(), optimizer=optimizer, **settings))


def test_stages_leave_no_hooks():
    model = small_net()
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), micro_batch=2, accumulation=4, stages={"2": 1})

    ported(*one_batch())

    assert [module for module in model.modules() if module._forward_pre_hooks] == []


def test_stages_of_a_model_that_begins_blocks_itself_are_p002():
    import poptorch

    model = small_net()
    poptorch.BeginBlock(model[2], ipu_id=1)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), micro_batch=2, accumulation=4, stages={"2": 1})

    assert_code("P002", lambda: ported(*one_batch()))


def test_a_model_that_begins_blocks_itself_trains_and_keeps_its_hooks():
    import poptorch

    model = small_net()
    poptorch.BeginBlock(model[2], user_id="second", ipu_id=1)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), micro_batch=2, accumulation=4)

    losses = train_ported(ported, [one_batch()] * 3)
    ported.destroy()

    assert losses[-1] < losses[0]
    assert model[2]._forward_pre_hooks
