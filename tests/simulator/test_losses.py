"""Which value back-propagation starts from."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

SEVERAL = (
    "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
    "poptorch.identity_loss."
)


class Scale(nn.Module):
    """One weight per input; `compute(output)` gives what `forward` returns."""

    def __init__(self, compute, weights=(1.0, 2.0)):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weights))
        self.compute = compute

    def forward(self, x):
        return self.compute(self.weight * x)


def step(poptorch, compute, weights=(1.0, 2.0)):
    """Return the result of one call and the change of the weights with a learning rate of 1."""
    model = Scale(compute, weights)
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    result = executor(torch.ones(2))
    return result, (torch.tensor(weights) - model.weight.detach()).tolist()


# -- identity_loss


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 4.0), ("mean", 2.0), ("none", [1.0, 3.0])])
def test_identity_loss_on_the_host_is_its_reduction(poptorch, reduction, expected):
    assert poptorch.identity_loss(torch.tensor([1.0, 3.0]), reduction).tolist() == expected


def test_another_reduction_is_refused(poptorch):
    with pytest.raises(AssertionError, match="Unsupported reduction type!"):
        poptorch.identity_loss(torch.ones(1), "max")


@pytest.mark.parametrize(("reduction", "gradient"), [("sum", [1.0, 1.0]), ("mean", [0.5, 0.5])])
def test_identity_loss_marks_the_loss(poptorch, reduction, gradient):
    loss, change = step(poptorch, lambda y: poptorch.identity_loss(y, reduction))

    assert loss.dim() == 0
    assert change == gradient


def test_a_loss_of_one_element_is_accepted(poptorch):
    loss, change = step(poptorch, lambda y: poptorch.identity_loss(y.sum().reshape(1), "none"))

    assert loss.shape == (1,)
    assert change == [1.0, 1.0]


def test_a_loss_that_is_no_scalar_starts_from_ones(poptorch):
    loss, change = step(poptorch, lambda y: poptorch.identity_loss(3 * y, "none"))

    assert loss.tolist() == [3.0, 6.0]
    assert change == [3.0, 3.0]


# -- which losses count


@pytest.mark.parametrize(
    "loss",
    [
        lambda y: F.nll_loss(F.log_softmax(y[None], 1), torch.zeros(1, dtype=torch.int64, device="ipu")),
        lambda y: F.cross_entropy(y[None], torch.zeros(1, dtype=torch.int64, device="ipu")),
        lambda y: F.l1_loss(y, torch.zeros_like(y)),
        lambda y: F.mse_loss(y, torch.zeros_like(y)),
        lambda y: F.binary_cross_entropy(y.sigmoid(), torch.zeros_like(y)),
        lambda y: F.binary_cross_entropy_with_logits(y, torch.zeros_like(y)),
        lambda y: F.kl_div(y, torch.ones_like(y), reduction="batchmean"),
        lambda y: F.poisson_nll_loss(y, torch.ones_like(y)),
        lambda y: F.smooth_l1_loss(y, torch.zeros_like(y)),
        lambda y: F.soft_margin_loss(y, torch.ones_like(y)),
        lambda y: F.multilabel_soft_margin_loss(y[None], torch.ones_like(y[None])),
        lambda y: F.hinge_embedding_loss(y, torch.ones_like(y)),
        lambda y: F.cosine_embedding_loss(y[None], 1 + y[None].flip(1), torch.ones(1, device="ipu")),
        lambda y: F.margin_ranking_loss(y, 2 * y, torch.ones_like(y)),
        lambda y: F.triplet_margin_loss(y[None], 2 * y[None], y[None] + 0.1),
        lambda y: F.ctc_loss(
            torch.stack([y, -y]).log_softmax(1)[:, None],
            torch.ones(1, 1, dtype=torch.int32, device="ipu"),
            (2,),
            (1,),
        ),
    ],
    ids=(
        "nll ce l1 mse bce bce_logits kl poisson smooth_l1 soft_margin multilabel_soft_margin hinge cosine ranking "
        "triplet ctc"
    ).split(),
)
def test_every_built_in_loss_trains(poptorch, loss):
    _, change = step(poptorch, loss)

    assert any(change)


def test_the_gradient_starts_from_the_loss_and_not_from_what_is_returned(poptorch):
    _, change = step(poptorch, lambda y: F.mse_loss(y, torch.zeros_like(y), reduction="sum") + 100 * y.sum())

    assert change == [2.0, 4.0]


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_what_is_written_to_the_loss_afterwards_is_returned_and_not_trained_on(poptorch, reduction):
    def compute(y):
        loss = poptorch.identity_loss(y.sum(), reduction)
        loss *= 3
        loss += y[0]
        return loss

    loss, change = step(poptorch, compute)

    assert loss.item() == 3 * 3.0 + 1.0
    assert change == [1.0, 1.0]


@pytest.mark.parametrize(
    "loss",
    [
        lambda y: F.kl_div(y.repeat(4, 1).log_softmax(1), torch.full((4, 2), 0.5), reduction="batchmean"),
        lambda y: F.mse_loss(y, torch.zeros(2), weight=torch.tensor([0.5, 4.0])),
    ],
    ids=["a mean of rows", "a weighted mean"],
)
def test_a_loss_that_torch_computes_in_steps_is_differentiated_as_a_whole(poptorch, loss):
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    expected = loss(weight)
    expected.backward()

    result, change = step(poptorch, loss)

    assert torch.allclose(result, expected)
    assert torch.allclose(torch.tensor(change), weight.grad)


def test_the_loss_need_not_be_returned(poptorch):
    def compute(y):
        poptorch.identity_loss(y, "sum")

    result, change = step(poptorch, compute)

    assert result is None
    assert change == [1.0, 1.0]


def test_a_loss_that_feeds_another_is_an_ordinary_value(poptorch):
    def compute(y):
        part = F.mse_loss(y, torch.zeros_like(y), reduction="sum")
        return part, poptorch.identity_loss(10 * part, "none")

    (part, whole), change = step(poptorch, compute)

    assert (part.item(), whole.item()) == (5.0, 50.0)
    assert change == [20.0, 40.0]


def test_several_losses_are_combined_by_identity_loss(poptorch):
    def compute(y):
        return poptorch.identity_loss(F.mse_loss(y, torch.zeros_like(y)) + F.l1_loss(y, torch.zeros_like(y)), "none")

    _, change = step(poptorch, compute)

    assert change == [1.5, 2.5]


def test_the_number_of_losses_is_logged(poptorch, debug_log):
    step(poptorch, lambda y: poptorch.identity_loss(F.mse_loss(y, torch.zeros_like(y)), "none"))

    assert "Found 2 losses and removed 1" in debug_log()


# -- errors


def test_independent_losses_are_refused(poptorch):
    with pytest.raises(poptorch.Error) as caught:
        step(poptorch, lambda y: (F.mse_loss(y, torch.zeros_like(y)), F.l1_loss(y, torch.zeros_like(y))))

    assert caught.value.message == SEVERAL


def test_a_loss_computed_only_to_be_looked_at_counts(poptorch):
    with pytest.raises(poptorch.Error, match="Multiple independent losses"):
        step(poptorch, lambda y: (poptorch.identity_loss(y, "sum"), F.l1_loss(y, torch.zeros_like(y))))


def test_training_without_a_loss_is_refused(poptorch):
    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph"):
        step(poptorch, lambda y: y.sum())


@pytest.mark.parametrize("cut", [lambda y: y.detach(), lambda y: 0 * y.detach() + 1])
def test_a_loss_without_a_path_to_a_parameter_updates_nothing_and_says_so(poptorch, caplog, cut):
    loss, change = step(poptorch, lambda y: poptorch.identity_loss(cut(y), "sum"))

    assert torch.isfinite(loss)
    assert change == [0.0, 0.0]
    assert "The loss does not depend on any trainable parameter: no parameter will be updated" in caplog.text


def test_a_model_without_trainable_parameters_runs(poptorch):
    model = Scale(lambda y: poptorch.identity_loss(y, "sum"))
    model.weight.requires_grad_(False)
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))

    assert executor(torch.ones(2)).item() == 3.0
    assert model.weight.tolist() == [1.0, 2.0]


# -- what is trained


def test_frozen_parameters_are_not_trained(poptorch, regression, batch):
    regression.linear.bias.requires_grad_(False)
    before = regression.linear.bias.clone()

    poptorch.trainingModel(regression)(*batch)

    assert torch.equal(regression.linear.bias, before)


def test_freezing_after_compiling_has_no_effect(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)
    before = regression.linear.bias.detach().clone()

    regression.linear.bias.requires_grad_(False)
    executor(*batch)

    assert not torch.equal(regression.linear.bias, before)


def test_parameters_without_a_gradient_path_do_not_decay(poptorch):
    model = Scale(lambda y: poptorch.identity_loss(y, "sum"))
    model.unused = nn.Parameter(torch.ones(1))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.5)

    poptorch.trainingModel(model, optimizer=optimizer)(torch.ones(2))

    assert model.unused.item() == 1.0


@pytest.mark.parametrize("reading", [lambda y: y.detach(), lambda y: torch.no_grad()(lambda: 2 * y)()])
def test_no_gradient_passes_detach_and_no_grad(poptorch, reading):
    _, change = step(poptorch, lambda y: poptorch.identity_loss(y + reading(y), "sum"))

    assert change == [1.0, 1.0]
