"""The facts about a step are counted from its graph."""

from __future__ import annotations

import json

import torch
from torch import nn

from porting.exports import capture
from porting.exports.dumps import dump_graph


def test_the_peak_counts_values_until_their_last_use():
    chain = nn.Sequential(*[nn.Sigmoid() for _ in range(5)])

    step = capture(chain, None, torch.ones(8, 4), mode="inference")

    assert json.loads(dump_graph(step, "json"))["sums"]["forward_peak_bytes"] == 2 * 8 * 4 * 4


def test_the_json_says_its_schema_and_the_same(linear):
    content = json.loads(dump_graph(linear, "json"))

    assert content["schema"] == "porting.graph/1"
    assert [tensor["kind"] for tensor in content["entering"]] == ["parameter", "parameter", "input", "input"]
    first = content["operators"][0]
    assert (first["flops"], first["new_bytes"], first["inputs"]) == (128, 64, ["input_0", "weight", "bias"])
    assert content["sums"]["state_bytes"] == (4 * 2 + 2) * 4


def test_values_of_the_json_are_made_before_they_are_read(step):
    content = json.loads(dump_graph(step, "json"))
    known = {tensor["name"] for tensor in content["entering"]}

    for item in content["operators"]:
        assert set(item["inputs"]) <= known, item["name"]
        known |= {tensor["name"] for tensor in item["outputs"]} | {item["name"]}

    assert set(content["returned"]) <= known
