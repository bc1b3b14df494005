"""Dumps say of each operator what is true of it, in each format."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re

import pytest
import torch
from torch import nn

from porting.diagnostics import ExecutableError, PortingError
from porting.exports import capture, load_step
from porting.exports.dumps import FORMATS, dump_graph

has_onnx = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript"))
STATEMENT = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|\w+)(?:\s*->\s*("(?:[^"\\]|\\.)*"))?\s*(\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\])?;$'
)


@pytest.fixture
def step(step_file):
    return load_step(step_file)


@pytest.fixture
def linear():
    """Give the step of a single layer, of which everything can be counted by hand."""
    return capture(nn.Linear(4, 2), nn.MSELoss(), (torch.ones(8, 4), torch.ones(8, 2)), target="a.py:make")


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


def test_the_text_tells_shapes_bytes_operations_modules_and_places(linear):
    lines = dump_graph(linear, "text").decode().splitlines()

    line = next(line for line in lines if "aten.linear" in line)
    assert re.match(r"\w+ = aten.linear.default\(input_0, weight, bias\) -> float32\[8, 2\]  64 B  128 FLOP", line)
    assert f"{__file__}:" in line
    assert lines[0] == "# training step of a.py:make, batch 8"


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


@pytest.mark.parametrize("form", ["text", "json", "dot"])
def test_segments_of_a_computation_order_are_shown(step, form):
    ordered = dataclasses.replace(step, computation_order="dummy2")

    assert b"segment" not in dump_graph(step, form)
    assert b"segment" in dump_graph(ordered, form)


def test_a_drawing_of_segments_can_be_parsed(step):
    assert statements(dump_graph(dataclasses.replace(step, computation_order="dummy2"), "dot"))


def test_the_peak_counts_values_until_their_last_use():
    chain = nn.Sequential(*[nn.Sigmoid() for _ in range(5)])

    step = capture(chain, None, torch.ones(8, 4), mode="inference")

    assert json.loads(dump_graph(step, "json"))["sums"]["forward_peak_bytes"] == 2 * 8 * 4 * 4


def test_an_unknown_format_is_an_error_that_lists_the_known_ones(linear):
    with pytest.raises(ExecutableError) as raised:
        dump_graph(linear, "png")

    assert raised.value.code == "E028"
    assert all(form in raised.value.finding.help[0] for form in FORMATS)


@pytest.mark.skipif(has_onnx, reason="the extra is installed")
def test_onnx_without_the_extra_is_a_clear_error(linear):
    with pytest.raises(PortingError, match="X001"):
        dump_graph(linear, "onnx")


@pytest.mark.skipif(not has_onnx, reason="the extra `onnx` is not installed")
@pytest.mark.filterwarnings("ignore")
class TestOnnx:
    """ONNX files, which torch's own exporter writes."""

    def test_a_model_computes_what_torch_does(self, parts):
        import onnx
        from onnx.reference import ReferenceEvaluator

        model, loss, batch, _optimizer = parts
        step = capture(model, loss, batch, mode="inference")

        found = onnx.load_from_string(dump_graph(step, "onnx"))

        (output,) = ReferenceEvaluator(found).run(None, {found.graph.input[0].name: batch[0].numpy()})
        expected = model.eval()(batch[0]).detach()
        torch.testing.assert_close(torch.from_numpy(output), expected, rtol=1e-4, atol=1e-5)

    def test_what_training_does_otherwise_is_refused_with_its_place(self, step):
        with pytest.raises(ExecutableError, match="in training it takes the statistics of the batch"):
            dump_graph(step, "onnx")

    def test_an_operator_without_a_form_is_named(self):
        class Bessel(nn.Module):
            def forward(self, x):
                return torch.special.i0e(x)

        step = capture(Bessel(), None, torch.ones(2, 2), mode="inference")

        with pytest.raises(ExecutableError) as raised:
            dump_graph(step, "onnx")

        assert "aten.special_i0e" in raised.value.finding.message
        assert raised.value.finding.place.file == __file__
