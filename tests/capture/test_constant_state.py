"""Integers and truth values are constants on the device, whatever `forward` writes into them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step

X = torch.ones(2, 3)


class Counts(nn.Module):
    """Has a buffer `count`, and does with it in `forward` what `change(self, x)` says."""

    def __init__(self, change, count=0):
        super().__init__()
        self.register_buffer("count", torch.tensor(count))
        self.change = change

    def forward(self, x):
        self.change(self)
        return x


def add_one(model):
    model.count += 1


def operators(model):
    graph = capture_step(model, [X], mode="inference")
    return [op.operator for op in graph.operators], graph


def test_a_count_that_is_read_is_made_in_a_copy():
    class Reads(Counts):
        def forward(self, x):
            self.count += 1
            return x + self.count

    names, graph = operators(Reads(None))

    assert names == ["aten.clone.default", "aten.add_.Tensor", "aten.add.Tensor"]
    assert graph.mutated_buffers == set()


def test_a_count_that_nothing_reads_is_left_out():
    names, graph = operators(nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()))

    assert names == ["aten.batch_norm.default", "aten.relu.default"]
    assert graph.findings == ()


def test_a_model_that_only_counts_has_an_empty_graph():
    names, graph = operators(Counts(add_one))

    assert names == []
    assert graph.graph.find_nodes(op="output")


@pytest.mark.parametrize("change", [add_one, lambda model: model.count.view(1)[0].add_(1)], ids=["whole", "view"])
def test_a_lost_write_is_reported_at_its_line(change):
    _names, graph = operators(Counts(change))

    (finding,) = graph.findings
    assert (finding.code, finding.place.file) == ("C019", __file__)
    assert finding.message == "what `forward` writes into the int64 buffer `count` is lost after each micro-batch"


def test_a_lost_truth_value_is_reported():
    _names, graph = operators(Counts(lambda model: model.count.logical_not_(), count=False))

    assert graph.findings[0].message.startswith("what `forward` writes into the bool buffer `count` is lost")


def test_a_parameter_of_integers_is_a_constant_too():
    model = Counts(add_one)
    del model.count
    model.count = nn.Parameter(torch.tensor(0), requires_grad=False)

    _names, graph = operators(model)

    assert graph.mutated_parameters == set()
    assert [finding.code for finding in graph.findings] == ["C019"]


def test_floats_are_variables():
    _names, graph = operators(Counts(add_one, count=0.0))

    assert graph.mutated_buffers == {"count"}
    assert graph.findings == ()
