"""The scopes of a trace: what each operator's node is told."""

from __future__ import annotations

import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._scopes.graph_scopes import GraphScopes, open_scopes


def test_a_trace_begins_in_the_first_block_without_scopes():
    facts = GraphScopes().node_facts()

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
    inside = scopes.node_facts()
    scopes.end_block()

    assert (inside["block"], inside["stage"], inside["phase"], inside["ipu"]) == ("A", 2, 1, 3)
    assert scopes.node_facts()["block"] is None
    assert scopes.node_facts()["ipu"] is None


def test_scopes_that_an_error_left_open_end_with_those_around_them():
    scopes, module = GraphScopes(), nn.ReLU()
    scopes.enter_module(module, "outer")
    scopes.push_name_scope("a")
    scopes.enter_module(nn.ReLU(), "lost")
    scopes.pop_name_scope()
    after = scopes.node_facts()["name_scope"]
    scopes.leave_module(module)

    assert after == "outer/"
    assert scopes.node_facts()["name_scope"] == ""


def test_nodes_keep_the_attributes_they_were_recorded_with():
    scopes = GraphScopes()
    scopes.set_attribute("a", "k", "1")
    before = scopes.node_facts()["attributes"]
    scopes.set_attribute("a", "k", "2")
    scopes.clear_attribute("b", "k")

    assert before == {"a": {"k": "1"}}
    assert scopes.node_facts()["attributes"] == {"a": {"k": "2"}}
    scopes.clear_attribute("a", "k")
    assert "attributes" not in scopes.node_facts()


def test_the_settings_of_a_multi_conv_reach_the_nodes_inside():
    scopes = GraphScopes()
    scopes.begin_multi_conv()
    inside = scopes.node_facts()["multi_conv"]
    scopes.end_multi_conv({"planType": 1})

    assert inside == {"number": 0, "planType": 1}
    assert "multi_conv" not in scopes.node_facts()
    assert not scopes.has_nested_multi_conv


def test_scopes_are_open_only_while_a_model_is_traced():
    seen = []

    class Looking(nn.Module):
        def forward(self, x):
            seen.append(open_scopes())
            return x + 1

    model = Looking()
    model(torch.ones(1))
    simulator.inferenceModel(model)(torch.ones(1))

    assert seen[0] is None
    assert isinstance(seen[1], GraphScopes)
    assert open_scopes() is None


def test_every_operator_is_told_of_its_scopes():
    executor = simulator.inferenceModel(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    executor.compile(torch.ones(1, 2, dtype=torch.float16))

    nodes = [node for node in executor.device_session.compiled.graph.graph.nodes if node.op == "call_function"]

    assert all({"block", "stage", "phase", "ipu", "name_scope", "source_location"} <= set(node.meta) for node in nodes)
