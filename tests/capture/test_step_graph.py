"""A captured step describes its operators, and what enters it."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from porting.capture import capture_step

X = torch.rand(3, 4)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        x = self.norm(x)
        return self.layers(x) * 2


def function(forward):
    """Make a module of `forward(self, ...)` without tensors of its own."""
    return type("Made", (nn.Module,), {"forward": forward})()


def inference(model, args=(), kwargs=None):
    return capture_step(model, args, kwargs, mode="inference")


def test_operators_have_shapes_and_types():
    graph = inference(Classifier(), [X])

    assert [(op.operator, op.shapes, op.dtypes) for op in graph.operators] == [
        ("aten.batch_norm.default", ((3, 4),), (torch.float32,)),
        ("aten.linear.default", ((3, 8),), (torch.float32,)),
        ("aten.relu.default", ((3, 8),), (torch.float32,)),
        ("aten.linear.default", ((3, 2),), (torch.float32,)),
        ("aten.mul.Tensor", ((3, 2),), (torch.float32,)),
    ]


def test_operators_know_the_module_that_ran_them():
    graph = inference(Classifier(), [X])

    assert [op.module_path for op in graph.operators] == ["norm", "layers.0", "layers.1", "layers.2", ""]


def test_operators_know_the_user_s_line():
    first = Classifier.forward.__code__.co_firstlineno

    graph = inference(Classifier(), [X])

    assert {op.place.file for op in graph.operators} == {__file__}
    assert [op.place.line for op in graph.operators] == [first + 2] + [first + 3] * 4


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows columns since 3.11")
def test_operators_know_the_user_s_columns():
    graph = inference(Classifier(), [X])

    place = graph.operators[-1].place
    assert (place.column, place.end_column) == (16, 34)


def test_the_graph_prints_one_line_for_each_operator():
    text = str(inference(nn.Linear(4, 2), [X]))

    assert text.splitlines()[:3] == [
        "parameter  weight: float32[2, 4]",
        "parameter  bias: float32[2]",
        "input      input: float32[3, 4]",
    ]
    assert text.splitlines()[3].startswith("linear_default = aten.linear.default -> float32[3, 2]  [forward]")


def test_what_enters_is_told_apart():
    model = function(lambda self, x: self.norm(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]))
    model.norm = nn.BatchNorm1d(4)

    graph = inference(model, [X])

    assert [(info.name, info.kind) for info in graph.parameters] == [
        ("norm.weight", "parameter"),
        ("norm.bias", "parameter"),
    ]
    assert [(info.name, info.kind) for info in graph.buffers] == [
        ("norm.running_mean", "buffer"),
        ("norm.running_var", "buffer"),
        ("norm.num_batches_tracked", "buffer"),
    ]
    assert [(info.name, info.kind) for info in graph.inputs] == [("x", "input")]
    assert [info.kind for info in graph.constants] == ["constant"]
    assert [info.kind for info in graph.outputs] == ["output"]
