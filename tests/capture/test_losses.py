"""Which values count as losses, and which of them back-propagation starts from."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step, find_losses, single_final_loss
from porting.diagnostics import CaptureError
from porting.simulator import identity_loss

CLASSES = torch.randint(0, 4, (5,))
VALUES = torch.rand(5, 4)
SIGNS = torch.ones(5, 4)
PAIRS = torch.ones(5)

LOSSES = {
    "identity_loss": (lambda w, y: identity_loss(w, reduction="mean"), CLASSES),
    "nll_loss": (lambda w, y: F.nll_loss(w, y), CLASSES),
    "nll_loss of images": (lambda w, y: F.nll_loss(w.reshape(1, 4, 5, 1), y), CLASSES.reshape(1, 5, 1)),
    "cross_entropy": (lambda w, y: F.cross_entropy(w, y), CLASSES),
    "cross_entropy of probabilities": (lambda w, y: F.cross_entropy(w, y), VALUES),
    "l1_loss": (lambda w, y: F.l1_loss(w, y), VALUES),
    "mse_loss": (lambda w, y: F.mse_loss(w, y), VALUES),
    "binary_cross_entropy": (lambda w, y: F.binary_cross_entropy(w.sigmoid(), y), VALUES),
    "binary_cross_entropy_with_logits": (lambda w, y: F.binary_cross_entropy_with_logits(w, y), VALUES),
    "kl_div": (lambda w, y: F.kl_div(w, y, reduction="batchmean"), VALUES),
    "poisson_nll_loss": (lambda w, y: F.poisson_nll_loss(w, y), VALUES),
    "smooth_l1_loss": (lambda w, y: F.smooth_l1_loss(w, y), VALUES),
    "soft_margin_loss": (lambda w, y: F.soft_margin_loss(w, y), SIGNS),
    "multilabel_soft_margin_loss": (lambda w, y: F.multilabel_soft_margin_loss(w, y), VALUES.round()),
    "MultiLabelSoftMarginLoss": (lambda w, y: nn.MultiLabelSoftMarginLoss()(w, y), VALUES.round()),
    "hinge_embedding_loss": (lambda w, y: F.hinge_embedding_loss(w, y), SIGNS),
    "cosine_embedding_loss": (lambda w, y: F.cosine_embedding_loss(w, w * 2, y), PAIRS),
    "margin_ranking_loss": (lambda w, y: F.margin_ranking_loss(w[:, 0], w[:, 1], y), PAIRS),
    "triplet_margin_loss": (lambda w, y: F.triplet_margin_loss(w, y, w * 2), VALUES),
    "ctc_loss": (
        lambda w, y: F.ctc_loss(F.log_softmax(w[:, None], 2), y, (5,), (3,)),
        torch.tensor([[1, 2, 3]]),
    ),
}


@pytest.mark.parametrize(("function", "label"), LOSSES.values(), ids=LOSSES.keys())
def test_every_loss_function_of_the_device_counts_once(trace, function, label):
    graph = trace(function, label, mode="training")

    assert graph.num_losses == 1
    assert graph.has_loss
    assert graph.loss_has_gradient


@pytest.mark.parametrize(
    "function",
    [
        lambda w, y: F.huber_loss(w, y),
        lambda w, y: (w - y).square().mean(),
    ],
)
def test_other_values_are_no_losses(refusal, function):
    finding = refusal(function, VALUES, mode="training")

    assert finding.code == "L004"


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_the_reduction_does_not_matter(trace, reduction):
    graph = trace(lambda w, y: F.l1_loss(w, y, reduction=reduction), VALUES, mode="training")

    assert graph.num_losses == 1


def test_a_loss_that_feeds_another_is_demoted(trace):
    graph = trace(
        lambda w, y: identity_loss(F.l1_loss(w, y) + 0.1 * F.mse_loss(w, y), reduction="none"), VALUES, mode="training"
    )

    final, demoted = find_losses(graph.graph)

    assert [str(node.target) for node in final] == ["poptorch.identity_loss.default"]
    assert [str(node.target) for node in demoted] == ["aten.l1_loss.default", "aten.mse_loss.default"]


def test_a_loss_with_a_penalty_trains_on_the_loss_alone(trace):
    graph = trace(lambda w, y: F.l1_loss(w, y) + w.square().sum(), VALUES, mode="training")

    final = single_final_loss(graph.graph)

    assert str(final.target) == "aten.l1_loss.default"


def test_independent_losses_are_refused_with_all_their_places(refusal):
    def two(w, y):
        first = F.l1_loss(w, y)
        second = F.mse_loss(w, y)
        return first, second

    finding = refusal(two, VALUES, mode="training")

    assert finding.code == "L005"
    assert len(finding.notes) == 2
    assert finding.place.line == two.__code__.co_firstlineno + 2


def test_no_loss_is_refused_with_the_remedy(refusal):
    finding = refusal(lambda w: w * 2, mode="training")

    assert finding.code == "L004"
    assert "in `forward`" in finding.help[0]
    assert "identity_loss" in finding.help[1]
    assert "to_ipu(model, loss)" in finding.help[2]


def test_inference_asks_for_no_loss(trace):
    graph = trace(lambda w, y: (F.l1_loss(w, y), F.mse_loss(w, y)), VALUES)

    assert graph.num_losses == 0
    assert not graph.has_loss


def test_a_graph_without_losses_has_no_final_one(trace):
    graph = trace(lambda w: w * 2).graph

    with pytest.raises(CaptureError) as caught:
        single_final_loss(graph)

    assert caught.value.code == "L004"


def test_a_loss_that_is_given_needs_no_loss_function():
    graph = capture_step(nn.Linear(4, 4), [VALUES, VALUES], loss=lambda output, label: (output - label).square().mean())

    assert graph.has_loss
    assert graph.loss_has_gradient
