"""A graph comes back from data as it was; nothing of the data is executed, and nothing in it is believed."""

from __future__ import annotations

import copy
import json
import operator

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.capture.graph_data import graph_from_data, graph_to_data, nodes_from_data, nodes_to_data
from porting.capture.plain_values import UndescribableError
from porting.diagnostics import ExecutableError

FUNCTIONS = {"getitem": operator.getitem}
_DAMAGES = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x, y):
        with torch.no_grad():
            factor = torch.full((3,), 2.0, device=x.device)
        return nn.functional.cross_entropy(self.norm(self.fc(x)) * factor, y)


@pytest.fixture(scope="module")
def graph():
    return capture_step(Net(), [torch.ones(2, 4), torch.zeros(2, dtype=torch.long)], mode="training")


@pytest.fixture
def data(graph):
    return json.loads(json.dumps(graph_to_data(graph), allow_nan=False))


def read(data, graph):
    return graph_from_data(data, constant_values=graph.constant_values)


def test_a_step_comes_back(graph, data):
    found = read(data, graph)

    assert str(found) == str(graph)
    assert graph_to_data(found) == graph_to_data(graph)
    assert (found.entering, found.outputs, found.mutated_buffers) == (
        graph.entering,
        graph.outputs,
        graph.mutated_buffers,
    )


def test_values_that_share_memory_share_it_again():
    graph = capture_step(nn.Flatten(), [torch.ones(2, 3, 4)], mode="inference")
    found = graph_from_data(graph_to_data(graph), constant_values=())

    values = [node.meta["val"] for node in found.graph.nodes if "val" in node.meta]

    assert len({value.untyped_storage()._cdata for value in values}) == 1


def test_constants_are_read_by_their_names_only():
    graph = torch.fx.Graph()
    graph.output((graph.create_node("get_attr", "table"),))
    data = nodes_to_data(graph, functions={})

    assert [node.target for node in nodes_from_data(data, functions={}, constants=["table"]).nodes][0] == "table"
    with pytest.raises(ValueError, match="there is no constant 'table'"):
        nodes_from_data(data, functions={})


def test_a_function_that_is_not_in_the_table_has_no_data():
    graph = torch.fx.Graph()
    graph.output((graph.call_function(operator.add, (1, 2)),))

    with pytest.raises(UndescribableError) as raised:
        nodes_to_data(graph, functions=FUNCTIONS)

    assert (raised.value.value, raised.value.node.name) == (operator.add, "add")


def test_an_operator_that_this_process_does_not_have_is_named_with_its_line(graph, data):
    node = next(node for node in data["nodes"] if node["target"].startswith("op:"))
    node["target"] = "op:aten.no_such_operator.default"

    with pytest.raises(ExecutableError, match="this process has no operator") as raised:
        read(data, graph)

    assert (raised.value.code, raised.value.finding.place.line) == ("E027", node["meta"]["place"]["is"]["place"][1])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "x):\n  import os\ndef f("),
        ("name", "class"),
        ("name", "\uff58"),
        ("target", "op:os.system"),
        ("target", "op:aten.from_file.default"),
        ("target", "op:aten.mm.__init__"),
        ("target", "function:eval"),
        ("target", "constant:x"),
        ("kwargs", {"x=print(1), y": 1}),
        ("args", [{"node": "nobody"}]),
        ("args", [[1]]),
        ("val", [[1], [1], 0, "float32", 10**6]),
        ("val", [[-1], [1], 0, "float32", 0]),
    ],
)
def test_what_no_capture_writes_is_refused(key, value, graph, data):
    changed = copy.deepcopy(data)
    node = next(node for node in changed["nodes"] if node["target"].startswith("op:"))
    node[key] = value

    with pytest.raises((*_DAMAGES, ExecutableError)):
        read(changed, graph)


def test_a_placeholder_has_no_default(graph, data):
    data["nodes"][0]["args"] = [1]

    with pytest.raises(ValueError, match="arguments of another kind of node"):
        read(data, graph)


def test_a_graph_goes_no_further_than_its_end(graph, data):
    data["nodes"].append({**data["nodes"][-1], "name": "output_1"})

    with pytest.raises(ValueError, match="has no end"):
        read(data, graph)
