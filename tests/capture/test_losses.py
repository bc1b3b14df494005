"""The loss that back-propagation starts from is the one that feeds no other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.capture.losses import find_losses, single_final_loss, value_when_computed
from porting.diagnostics import CaptureError


def graph_of(forward):
    model = type("Made", (nn.Module,), {"forward": forward})()
    return capture_step(model, [torch.rand(3, 4)], mode="inference").graph


def test_a_loss_that_another_is_made_of_is_demoted():
    graph = graph_of(lambda self, x: F.mse_loss(F.l1_loss(x, x * 2), x.sum() * 0))

    final, demoted = find_losses(graph)

    assert (len(final), len(demoted)) == (1, 1)


def test_two_independent_losses_are_refused():
    with pytest.raises(CaptureError, match="L005"):
        single_final_loss(graph_of(lambda self, x: (F.mse_loss(x, x * 2), F.l1_loss(x, x * 2))))


def test_a_graph_without_a_loss_is_refused():
    with pytest.raises(CaptureError, match="L004"):
        single_final_loss(graph_of(lambda self, x: x * 2))


def test_a_loss_that_is_written_to_later_is_copied():
    def forward(self, x):
        loss = F.mse_loss(x, x * 2)
        value = loss * 2
        loss.add_(1)
        return value

    loss = single_final_loss(graph_of(lambda self, x: F.mse_loss(x, x * 2)))
    written = find_losses(graph_of(forward))

    assert value_when_computed(loss) is loss
    assert value_when_computed((written[0] + written[1])[0]).target is torch.ops.aten.clone.default
