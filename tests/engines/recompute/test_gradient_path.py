"""Which parameters get a gradient, and which values back-propagation passes on its way to them."""

from __future__ import annotations

import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.recompute.gradient_path import nodes_with_gradient, trained_parameters


class Branches(nn.Module):
    """A loss of one weight; another is detached, a third frozen, a fourth leads to an output only."""

    def __init__(self):
        super().__init__()
        for name in ("trained", "detached", "frozen", "shown"):
            self.register_parameter(name, nn.Parameter(torch.ones(2)))
        self.frozen.requires_grad_(False)

    def forward(self, x):
        output = (x * self.shown).sin()
        loss = nn.functional.l1_loss(x * self.trained + (x * self.detached).detach() * self.frozen, x)
        return output, loss


def test_parameters_are_trained_if_the_loss_depends_on_them():
    graph = capture_step(Branches(), [torch.ones(2)], mode="training")

    assert trained_parameters(graph) == ["trained"]


def test_values_beside_the_way_to_the_loss_have_no_gradient():
    graph = capture_step(Branches(), [torch.ones(2)], mode="training")

    targets = [str(node.target) for node in nodes_with_gradient(graph)]

    assert "aten.mul.Tensor" in targets
    assert "aten.sin.default" not in targets


def test_a_graph_for_inference_has_no_gradients():
    graph = capture_step(Branches(), [torch.ones(2)], mode="inference")

    assert nodes_with_gradient(graph) == set()
