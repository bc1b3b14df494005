"""The library's marks of blocks, scopes and attributes, called as operators inside `forward`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._scopes.graph_scopes import open_scopes

library = torch.ops.poptorch


class Function(nn.Module):
    """A module whose `forward` is `function`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.fixture
def facts():
    """Give a function that runs `function(x)` on the device and returns the scopes' facts after it."""

    def facts(function):
        found = []

        def forward(x):
            function()
            found.append(open_scopes().node_facts())
            return x + 1

        options = simulator.Options().setExecutionStrategy(simulator.ShardedExecution())
        simulator.inferenceModel(Function(forward), options)(torch.ones(1))
        return found[0]

    return facts


def test_blocks_are_begun(facts):
    found = facts(lambda: library.begin_ipu_block(1, 0, 1))

    assert (found["stage"], found["phase"], found["ipu"]) == (1, 0, 1)


def test_name_scopes_are_pushed_and_popped(facts):
    def scopes():
        library.push_name_scope("outer")
        library.push_name_scope("inner")
        library.pop_name_scope()

    assert facts(scopes)["name_scope"] == "outer/"


def test_attributes_are_set_and_cleared(facts):
    def attributes():
        library.set_attribute("__outline", "layer", "a")
        library.set_attribute("__outline", "other", "b")
        library.clear_attribute("__outline", "layer")

    assert facts(attributes)["attributes"] == {"__outline": {"other": "b"}}


def test_an_operator_after_the_last_block_is_refused():
    def forward(x):
        library.begin_ipu_block(0, 0, 0)
        library.end_ipu_block()
        return x + 1

    with pytest.raises(simulator.Error, match="No active Block"):
        simulator.inferenceModel(Function(forward))(torch.ones(1))


def test_a_multi_conv_gets_its_settings():
    found = []

    def forward(x):
        library.begin_multi_conv()
        y = torch.nn.functional.conv1d(x, x)
        library.end_multi_conv([0.5], None, 1, cycle_back_off=0.25)
        found.extend(open_scopes().multi_convs)
        return y

    simulator.inferenceModel(Function(forward))(torch.ones(1, 1, 3))

    assert found == [{"number": 0, "availableMemoryProportions": [0.5], "planType": 1, "cycleBackOff": 0.25}]


def test_optimizer_groups_are_left_to_the_optimizer(facts):
    before = facts(lambda: None)

    assert facts(lambda: library.optimizer_group(1, []))["name_scope"] == before["name_scope"]
