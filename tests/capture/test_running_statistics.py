"""What `forward` reads of running statistics beside the batch normalisation that updates them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.diagnostics import Severity


class Norm(nn.Module):
    """Batch normalisation whose `forward` is `step(self, x)`."""

    def __init__(self, step):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.step = step

    def forward(self, x):
        return self.step(self, x)


def read_after(model, x):
    return model.norm(x), model.norm.running_mean.sum()


def return_after(model, x):
    return model.norm(x), model.norm.running_mean


def read_view_after(model, x):
    view = model.norm.running_mean.view(1, 3)
    return model.norm(x), view.sum()


def read_before(model, x):
    before = model.norm.running_mean.sum()
    return model.norm(x), before


def normalise_twice(model, x):
    return model.norm(model.norm(x))


def normalise_with_copies_after(model, x):
    """What a functional call with copies of the statistics does: it updates those, and nobody looks at them."""
    out = model.norm(x)
    copies = model.norm.running_mean.clone(), model.norm.running_var.clone()
    return out, nn.functional.batch_norm(x, *copies, training=True)


def write_after(model, x):
    out = model.norm(x)
    model.norm.running_mean.mul_(0.5)
    return out, model.norm.running_mean.sum()


def captured(step):
    return capture_step(Norm(step), [torch.ones(4, 3)], mode="inference")


def names(graph):
    return [operator.operator for operator in graph.operators]


@pytest.mark.parametrize("step", [read_after, return_after, read_view_after])
def test_what_is_read_after_the_update_is_a_copy_from_before_it(step):
    assert names(captured(step))[0] == "aten.clone.default"


@pytest.mark.parametrize("step", [read_before, normalise_twice, write_after])
def test_no_copy_is_made_where_the_update_hides_nothing(step):
    graph = captured(step)

    assert "aten.clone.default" not in names(graph)
    assert graph.findings == ()


@pytest.mark.parametrize("step", [read_after, return_after, read_view_after])
def test_the_statistics_are_updated_all_the_same(step):
    assert captured(step).mutated_buffers == {"norm.running_mean", "norm.running_var"}


def test_a_reader_after_the_update_is_reported_at_its_line():
    (finding,) = captured(read_after).findings

    assert (finding.code, finding.severity) == ("C046", Severity.WARNING)
    assert finding.place.line == read_after.__code__.co_firstlineno + 1
    assert finding.message == "`forward` reads `norm.running_mean` after batch normalisation has updated it"


def test_copies_that_are_only_updated_are_read_by_nobody():
    assert captured(normalise_with_copies_after).findings == ()


def test_in_eval_mode_nothing_is_updated():
    model = Norm(read_after).eval()

    assert names(capture_step(model, [torch.ones(4, 3)], mode="inference")) == [
        "aten.batch_norm.default",
        "aten.sum.default",
    ]
