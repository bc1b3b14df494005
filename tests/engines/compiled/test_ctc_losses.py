"""A CTC loss is traced, and its operator computes what torch computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from porting.engines.compiled.ctc_losses import compute_ctc_loss
from porting.engines.compiled.step_tracing import make_fake_tensors, trace

STEPS, BATCH, CLASSES = 12, 3, 5


def make_batch(targets=None):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(STEPS, BATCH, CLASSES, generator=generator)
    if targets is None:
        targets = torch.randint(1, CLASSES, (BATCH, 4), generator=generator)
    return scores, targets, torch.tensor([12, 9, 10]), torch.tensor([4, 2, 3])


def find_loss_and_gradient(scores, targets, lengths, target_lengths, *, zero_infinity=False):
    scores = scores.detach().requires_grad_()
    loss = torch.ops.aten.ctc_loss.Tensor(
        F.log_softmax(scores, -1), targets, lengths, target_lengths, 0, 2, zero_infinity
    )
    return loss.detach(), *torch.autograd.grad(loss, [scores])


def run_traced(function, arguments):
    with make_fake_tensors() as mode:
        graph = trace(function, [mode.from_tensor(argument) for argument in arguments])
    return torch.fx.GraphModule(torch.nn.Module(), graph)(*arguments), [node.target for node in graph.nodes]


@pytest.mark.parametrize("are_joined", [False, True])
def test_a_traced_loss_and_its_gradient_are_torchs(are_joined):
    batch = make_batch(torch.tensor([1, 2, 3, 4, 2, 2, 1, 3, 1]) if are_joined else None)

    found, operators = run_traced(lambda *values: find_loss_and_gradient(*values), batch)

    torch.testing.assert_close(found, find_loss_and_gradient(*batch))
    assert compute_ctc_loss in operators


def test_a_target_that_does_not_fit_has_no_gradient_where_infinity_is_zero():
    scores, targets, lengths, target_lengths = make_batch()
    batch = scores, targets, torch.tensor([12, 1, 10]), target_lengths

    found, _ = run_traced(lambda *values: find_loss_and_gradient(*values, zero_infinity=True), batch)

    torch.testing.assert_close(found, find_loss_and_gradient(*batch, zero_infinity=True))
    assert not found[1][:, 1].any()


def test_without_gradients_none_is_computed():
    scores, *what = make_batch()
    log_probs = F.log_softmax(scores, -1)

    losses, gradient = compute_ctc_loss(log_probs, *what, 0, False, False)

    assert torch.equal(losses, F.ctc_loss(log_probs, *what, reduction="none"))
    assert not gradient.numel()


def test_results_without_values_have_the_shapes_of_the_inputs():
    scores, *what = (value.to("meta") for value in make_batch())

    losses, gradient = compute_ctc_loss(scores, *what, 0, False, True)

    assert (losses.shape, gradient.shape) == ((BATCH,), scores.shape)
