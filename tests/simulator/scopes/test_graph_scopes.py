"""The scopes of a trace: what each operator's node is told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._scopes.graph_scopes import GraphScopes, change_scopes

library = torch.ops.poptorch


def test_a_trace_begins_in_the_first_block_without_scopes():
    facts = GraphScopes().read_node_facts()

    assert {key: facts[key] for key in ("block", "stage", "phase", "ipu", "name_scope")} == {
        "block": "",
        "stage": 0,
        "phase": 0,
        "ipu": 0,
        "name_scope": "",
    }
    assert not {"attributes", "multi_conv"} & set(facts)


def test_outside_all_blocks_there_is_no_place():
    scopes = GraphScopes()
    scopes.begin_block(2, 1, 3, "A")
    inside = scopes.read_node_facts()
    scopes.end_block()

    assert (inside["block"], inside["stage"], inside["phase"], inside["ipu"]) == ("A", 2, 1, 3)
    assert scopes.read_node_facts()["block"] is None
    assert scopes.read_node_facts()["ipu"] is None


def test_scopes_that_an_error_left_open_end_with_those_around_them():
    scopes, module = GraphScopes(), nn.ReLU()
    scopes.push_name_scope("outer", module)
    scopes.push_name_scope("a")
    scopes.push_name_scope("lost", nn.ReLU())
    scopes.pop_name_scope()
    after = scopes.read_node_facts()["name_scope"]
    scopes.pop_name_scope(module)

    assert after == "outer/"
    assert scopes.read_node_facts()["name_scope"] == ""


def test_nodes_keep_the_attributes_they_were_recorded_with():
    scopes = GraphScopes()
    scopes.set_attribute("a", "k", "1")
    before = scopes.read_node_facts()["attributes"]
    scopes.set_attribute("a", "k", "2")
    scopes.clear_attribute("b", "k")

    assert before == {"a": {"k": "1"}}
    assert scopes.read_node_facts()["attributes"] == {"a": {"k": "2"}}
    scopes.clear_attribute("a", "k")
    assert "attributes" not in scopes.read_node_facts()


def test_the_settings_of_a_multi_conv_reach_the_nodes_inside():
    scopes = GraphScopes()
    scopes.begin_multi_conv()
    inside = scopes.read_node_facts()["multi_conv"]
    scopes.end_multi_conv(plan_type=1)

    assert inside == {"number": 0, "planType": 1}
    assert "multi_conv" not in scopes.read_node_facts()
    assert not scopes.has_nested_multi_conv


def test_scopes_are_open_only_while_a_model_is_traced():
    seen = []

    class Looking(nn.Module):
        def forward(self, x):
            change_scopes(seen.append)
            return x + 1

    model = Looking()
    model(torch.ones(1))
    simulator.inferenceModel(model)(torch.ones(1))

    change_scopes(seen.append)
    assert [type(scopes) for scopes in seen] == [GraphScopes]


def test_every_operator_is_told_of_its_scopes():
    executor = simulator.inferenceModel(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    executor.compile(torch.ones(1, 2, dtype=torch.float16))

    nodes = [node for node in executor.device_session.compiled.graph.graph.nodes if node.op == "call_function"]

    assert all({"block", "stage", "phase", "ipu", "name_scope", "source_location"} <= set(node.meta) for node in nodes)


# the library's marks of blocks, scopes and attributes, called as operators inside `forward`


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
            change_scopes(lambda scopes: found.append(scopes.read_node_facts()))
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
        change_scopes(lambda scopes: found.extend(scopes.multi_convs))
        return y

    simulator.inferenceModel(Function(forward))(torch.ones(1, 1, 3))

    assert found == [{"number": 0, "availableMemoryProportions": [0.5], "planType": 1, "cycleBackOff": 0.25}]


def test_optimizer_groups_are_left_to_the_optimizer(facts):
    before = facts(lambda: None)

    assert facts(lambda: library.optimizer_group(1, []))["name_scope"] == before["name_scope"]
