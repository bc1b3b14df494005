"""A captured graph as data and as an exported file."""

from __future__ import annotations

import json
import zlib

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.simulator._graph.graph_files import export_graph, hash_record, make_graph_record, trace_graph
from porting.simulator._logging import setLogLevel


class Scale(nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return torch.cat([x * self.factor, x.sum(dim=0, keepdim=True)]) * self.weight


def graph_of(model, shape=(2, 3)):
    return capture_step(model, [torch.ones(shape)], {}, mode="inference")


def test_equal_models_have_equal_records():
    assert make_graph_record(graph_of(Scale())) == make_graph_record(graph_of(Scale()))


@pytest.mark.parametrize("graph", [lambda: graph_of(Scale(3.0)), lambda: graph_of(Scale(), (4, 3))])
def test_other_models_have_other_fingerprints(graph):
    assert hash_record(make_graph_record(graph())) != hash_record(make_graph_record(graph_of(Scale())))


def test_settings_are_part_of_the_fingerprint():
    record = make_graph_record(graph_of(Scale()))

    assert hash_record(record) != hash_record(record, settings={"replicas": 2})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_other_constants_have_other_records(dtype):
    class Adds(nn.Module):
        def __init__(self, *values):
            super().__init__()
            self.values = values

        def forward(self, x):
            return x + torch.tensor(self.values, device=x.device, dtype=dtype)

    records = [make_graph_record(graph_of(Adds(*values))) for values in [(0, 1, 1), (0, 1, 1), (1, 1, 0)]]

    assert records[0] == records[1]
    assert records[0]["constants"] != records[2]["constants"]
    assert {key for key in records[0] if records[0][key] != records[2][key]} == {"constants"}


def test_a_record_says_what_enters_and_what_is_written():
    record = json.loads(json.dumps(make_graph_record(graph_of(Scale()))))

    assert record["parameters"] == [["weight", [3], [1], "float32", True]]
    assert record["mutated_buffers"] == ["count"]
    assert "aten.cat.default" in [name for name, _arguments in record["operators"]]
    assert [shape for shape, _dtype in record["outputs"]] == [[3, 3]]


def test_nothing_is_exported_without_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("POPTORCH_EXPORT_PROTO_FILE", raising=False)
    monkeypatch.chdir(tmp_path)

    export_graph(graph_of(Scale()))

    assert list(tmp_path.iterdir()) == []


def test_compiling_exports_the_graph_as_text(poptorch, monkeypatch, tmp_path):
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(tmp_path / "a" / "graph.txt"))

    poptorch.inferenceModel(Scale()).compile(torch.ones(2, 3))

    text = (tmp_path / "a" / "graph.txt").read_text()
    assert "aten.cat.default" in text
    assert "parameter  weight" in text


def test_the_binary_export_is_the_compressed_record(monkeypatch, tmp_path):
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(tmp_path / "graph"))
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_AS_BINARY", "1")
    graph = graph_of(Scale())

    export_graph(graph)

    exported = json.loads(zlib.decompress((tmp_path / "graph").read_bytes()))
    assert exported == json.loads(json.dumps(make_graph_record(graph)))


@pytest.mark.parametrize(("variable", "num_lines"), [("", 10), ("3", 3), ("0", 25), ("-1", 25)])
def test_the_end_of_the_graph_is_traced(monkeypatch, capsys, variable, num_lines):
    monkeypatch.setenv("POPTORCH_MAX_GRAPH_LEN", variable)
    model = nn.Sequential(*[nn.ReLU() for _ in range(24)])
    graph = capture_step(model, [torch.ones(1)], {}, mode="inference")

    setLogLevel("TRACE")
    try:
        trace_graph(graph)
    finally:
        setLogLevel("WARN")

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == num_lines
    assert all("[poptorch:cpp] [trace]" in line for line in lines)


def test_the_graph_is_not_traced_at_other_levels(capsys):
    trace_graph(graph_of(Scale()))

    assert capsys.readouterr().err == ""
