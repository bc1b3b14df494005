"""The facts about a step are counted from its graph."""

from __future__ import annotations

import dataclasses
import json
import re

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


STATEMENT = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|\w+)(?:\s*->\s*("(?:[^"\\]|\\.)*"))?\s*(\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\])?;$'
)


def statements(dot):
    """Parse the lines of a drawing; each is a frame, a setting, a node or an arrow."""
    lines = dot.decode().splitlines()
    assert lines[0].startswith("digraph ")
    assert lines[-1] == "}"
    framing = re.compile(r'\s*(subgraph "(?:[^"\\]|\\.)*" \{|\}|label="(?:[^"\\]|\\.)*"; style=dashed;|\w+=.*;)$')
    found = []
    for line in lines[1:-1]:
        match = STATEMENT.fullmatch(line)
        assert match or framing.fullmatch(line), line
        found += [match.groups()] if match else []
    return found


def test_the_drawing_can_be_parsed_and_its_arrows_lead_from_node_to_node(step):
    found = statements(dump_graph(step, "dot"))

    nodes = {name for name, target, _ in found if target is None}
    arrows = [(name, target) for name, target, _ in found if target is not None]
    assert arrows
    assert {end for arrow in arrows for end in arrow} <= nodes


def test_the_drawing_quotes_what_would_end_a_string(linear):
    odd = dataclasses.replace(linear, target='a"b\\n{c}')

    assert r'digraph "training step of a\"b\\n{c}, batch 8" {' in dump_graph(odd, "dot").decode()
    statements(dump_graph(odd, "dot"))


def test_a_drawing_of_segments_can_be_parsed(step):
    assert statements(dump_graph(dataclasses.replace(step, computation_order="dummy2"), "dot"))


def test_the_text_tells_shapes_bytes_operations_modules_and_places():
    batch = torch.ones(8, 4), torch.ones(8, 2)
    linear = capture(nn.Linear(4, 2), nn.MSELoss(), batch, target="a.py:make")

    lines = dump_graph(linear, "text").decode().splitlines()

    line = next(line for line in lines if "aten.linear" in line)
    assert re.match(r"\w+ = aten.linear.default\(input_0, weight, bias\) -> float32\[8, 2\]  64 B  128 FLOP", line)
    assert f"{__file__}:" in line
    assert lines[0] == "# training step of a.py:make, batch 8"
