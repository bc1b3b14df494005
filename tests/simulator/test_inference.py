"""Inference executors: they share their weights with training and change none of them."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn


@pytest.fixture
def train(poptorch, regression):
    """Give a training executor."""
    return poptorch.trainingModel(regression, optimizer=poptorch.optim.SGD(regression.parameters(), lr=0.5))


def test_inference_equals_the_model_on_the_host(poptorch, regression, batch):
    expected = regression(*batch)

    output, loss = poptorch.inferenceModel(regression)(*batch)

    torch.testing.assert_close((output, loss), expected)


def test_inference_needs_no_loss(poptorch):
    assert poptorch.inferenceModel(nn.ReLU())(-torch.ones(2)).tolist() == [0.0, 0.0]


def test_inference_may_compute_several_losses(poptorch):
    class Losses(nn.Module):
        def forward(self, x):
            return nn.functional.mse_loss(x, 2 * x), nn.functional.l1_loss(x, 3 * x)

    losses = poptorch.inferenceModel(Losses())(torch.ones(2))

    assert [loss.item() for loss in losses] == [1.0, 2.0]


def test_inference_updates_no_weight(poptorch, regression, batch):
    before = regression.linear.weight.detach().clone()
    executor = poptorch.inferenceModel(regression)

    executor(*batch)
    executor.copyWeightsToHost()

    assert torch.equal(regression.linear.weight, before)


# -- following training


@pytest.mark.parametrize("take", [lambda executor: executor, lambda executor: executor.model])
def test_inference_uses_what_was_trained(poptorch, train, batch, take):
    infer = poptorch.inferenceModel(take(train))
    infer(*batch)

    train(*batch)

    assert torch.equal(infer(*batch)[1], train(*batch)[1])


def test_inference_made_after_training_uses_what_was_trained(poptorch, train, batch):
    train(*batch)

    infer = poptorch.inferenceModel(train)

    assert torch.equal(infer(*batch)[1], train(*batch)[1])


def test_weights_are_fetched_once_for_each_burst_of_training(poptorch, train, batch):
    infer = poptorch.inferenceModel(train)
    train(*batch)
    train(*batch)

    infer(*batch)
    infer(*batch)

    assert train._host_weights_version == 1


def test_weights_are_sent_once_for_each_burst_of_training(poptorch, train, batch, debug_log):
    infer = poptorch.inferenceModel(train)
    infer(*batch)
    train(*batch)
    debug_log()

    infer(*batch)
    infer(*batch)

    assert debug_log().count("Implicit copyWeightsToDevice()") == 1


def test_fetching_an_inference_executors_weights_does_not_stop_it_following(poptorch, train, batch):
    infer = poptorch.inferenceModel(train)
    infer(*batch)
    infer.copyWeightsToHost()

    train(*batch)

    assert torch.equal(infer(*batch)[1], train(*batch)[1])


def test_inference_goes_on_after_its_trainer_is_destroyed(poptorch, train, batch):
    infer = poptorch.inferenceModel(train)
    infer(*batch)
    train(*batch)
    expected = train.model(*batch)[1]

    train.destroy()

    assert torch.equal(infer(*batch)[1], expected)


def test_inference_uses_what_a_forgotten_trainer_trained_last(poptorch, regression, batch):
    train = poptorch.trainingModel(regression, optimizer=poptorch.optim.SGD(regression.parameters(), lr=0.5))
    infer = poptorch.inferenceModel(train)
    train(*batch)
    infer(*batch)
    train(*batch)
    del train
    gc.collect()

    loss = infer(*batch)[1]

    torch.testing.assert_close(loss, regression(*batch)[1].detach())


def test_inference_made_before_the_trainer_takes_the_hosts_weights_when_it_compiles(poptorch, regression, batch):
    infer = poptorch.inferenceModel(regression)
    train = poptorch.trainingModel(regression)
    train(*batch)

    loss = infer(*batch)[1]

    assert torch.equal(loss, train(*batch)[1])


def test_inference_made_before_the_trainer_does_not_follow_it(poptorch, regression, batch):
    infer = poptorch.inferenceModel(regression)
    before = infer(*batch)[1]

    poptorch.trainingModel(regression)(*batch)

    assert torch.equal(infer(*batch)[1], before)


def test_inference_of_a_part_takes_the_trained_weights_when_it_compiles(poptorch, train, batch):
    train(*batch)

    output = poptorch.inferenceModel(train.model.linear)(batch[0])

    assert torch.equal(output, train(*batch)[0])


# -- modes


def test_the_mode_at_compile_time_is_frozen(poptorch):
    model = nn.Sequential(nn.Dropout(1.0))
    executor = poptorch.inferenceModel(model)
    executor(torch.ones(2))

    executor.eval()

    assert executor(torch.ones(2)).tolist() == [0.0, 0.0]


def test_the_mode_changes_when_the_model_compiles_again(poptorch):
    model = nn.Sequential(nn.Dropout(1.0))
    executor = poptorch.inferenceModel(model)
    executor(torch.ones(2))

    model.eval()
    executor.destroy()

    assert executor(torch.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("wrap", ["trainingModel", "inferenceModel"])
@pytest.mark.parametrize("mode", [True, False])
def test_wrapping_does_not_change_the_mode(poptorch, regression, wrap, mode):
    regression.train(mode)

    executor = getattr(poptorch, wrap)(regression)

    assert executor._model.training is regression.training is mode


def test_inference_in_train_mode_updates_batch_statistics_on_the_device(poptorch):
    model = nn.BatchNorm1d(2)
    executor = poptorch.inferenceModel(model)

    executor(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    on_host = model.running_mean.tolist()
    executor.copyWeightsToHost()

    assert on_host == [0.0, 0.0]
    torch.testing.assert_close(model.running_mean, torch.tensor([0.2, 0.4]))
