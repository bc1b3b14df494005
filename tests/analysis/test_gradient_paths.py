"""Parameters that no path leads to, back from the loss, are found."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from porting.analysis.gradient_paths import iter_gradient_faults, list_parameters_without_gradient
from porting.capture import capture_step

X, Y = torch.rand(8, 4), torch.rand(8, 4)


class Parts(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.run = forward

    def forward(self, x):
        return self.run(self, x)


def graph_of(forward, prepare=lambda model: None):
    model = Parts(forward)
    prepare(model)
    return capture_step(model, [X, Y], loss=F.mse_loss)


def test_all_parameters_that_lead_to_the_loss_are_trained():
    assert list_parameters_without_gradient(graph_of(lambda m, x: m.two(m.one(x)))) == []


def test_unused_parameters_are_named_without_a_place():
    (finding,) = iter_gradient_faults(graph_of(lambda m, x: m.one(x)))

    assert finding.code == "L020"
    assert "`forward` does not use `two.weight`, `two.bias`" in finding.message


def test_a_detached_branch_is_named_at_the_line_of_its_use():
    def forward(m, x):
        return m.one(x) + m.two(x).detach()

    (finding,) = iter_gradient_faults(graph_of(forward))

    assert "no way leads from the loss to `two.weight`" in finding.message
    assert finding.place.line == forward.__code__.co_firstlineno + 1


def test_what_is_written_in_place_leads_on():
    def forward(m, x):
        result = torch.zeros(8, 4, device=x.device)
        result[:, 1:] += m.two(m.one(x))[:, 1:]
        return result

    assert list_parameters_without_gradient(graph_of(forward)) == []


def test_frozen_parameters_are_left_out():
    graph = graph_of(lambda m, x: m.one(x), prepare=lambda m: m.two.requires_grad_(False))

    assert not list(iter_gradient_faults(graph))


def test_a_loss_without_a_gradient_is_an_error():
    (finding,) = iter_gradient_faults(graph_of(lambda m, x: m.one(x).detach()))

    assert finding.code == "L003"


def test_a_model_without_trainable_parameters_is_an_error():
    (finding,) = iter_gradient_faults(graph_of(lambda m, x: m.one(x), prepare=lambda m: m.requires_grad_(False)))

    assert (finding.code, finding.message) == ("L003", "no parameter of the model is trainable")
