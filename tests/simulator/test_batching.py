"""How the rows of a call's inputs are dealt out to iterations, accumulation steps and replicas."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import porting.simulator as simulator

OPTIMIZERS = {
    "SGD": lambda backend, parameters: backend.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda backend, parameters: backend.Adam(parameters, lr=0.01, eps=1e-3),
}


class RowSum(nn.Module):
    def forward(self, x):
        return x.sum(0, keepdim=True)


def make_options(module, *, iterations=1, accumulation=1, replicas=1):
    options = module.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(module.OutputMode.All)
    return options


# -- which rows


@pytest.mark.parametrize(("iterations", "accumulation", "replicas"), [(2, 1, 1), (1, 3, 1), (1, 1, 2), (2, 3, 2)])
def test_rows_must_be_a_multiple_of_the_micro_batches(poptorch, regression, iterations, accumulation, replicas):
    options = make_options(poptorch, iterations=iterations, accumulation=accumulation, replicas=replicas)
    executor = poptorch.trainingModel(regression, options)
    parts = iterations * accumulation * replicas

    with pytest.raises(AssertionError) as caught:
        executor(torch.ones(parts + 1, 3), torch.ones(parts, 2))

    assert str(caught.value).startswith(
        f"Invalid batch dimension: In the input torch.Size([{parts + 1}, 3]), the batch dimension ({parts + 1}) must "
        f"be a multiple of Options.deviceIterations({iterations}) * (Options.replicationFactor({replicas}) / "
        "Options.inputReplicaGrouping.input_group_size(1)) * Options.Training.gradientAccumulation("
        f"{accumulation}) = {parts} because it is used to calculate the batch size which will be executed on the device"
    )


def test_a_wrong_batch_leaves_the_executor_usable(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression, make_options(poptorch, iterations=2))
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        executor(torch.ones(3, 3), torch.ones(3, 2))

    assert executor(*batch)[1].shape == (2,)


def test_forward_sees_one_micro_batch(poptorch):
    class Rows(nn.Module):
        def forward(self, x):
            return x + x.shape[0]

    executor = poptorch.inferenceModel(Rows(), poptorch.Options().deviceIterations(3))

    assert executor(torch.zeros(6)).tolist() == [2.0] * 6


def test_a_scalar_counts_as_one_row(poptorch):
    executor = poptorch.inferenceModel(nn.Identity())

    assert executor(torch.tensor(3.0)).item() == 3.0


def test_a_scalar_cannot_be_dealt_out(poptorch):
    executor = poptorch.inferenceModel(nn.Identity(), poptorch.Options().deviceIterations(2))

    with pytest.raises(AssertionError, match=r"In the input torch.Size\(\[\]\), the batch dimension \(1\)"):
        executor(torch.tensor(3.0))


def test_inputs_may_have_micro_batches_of_different_sizes(poptorch):
    class Spread(nn.Module):
        def forward(self, x, y):
            return x + y.sum()

    executor = poptorch.inferenceModel(Spread(), poptorch.Options().deviceIterations(2))

    assert executor(torch.zeros(2), torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [3.0, 7.0]


def test_a_tensor_that_is_no_batch_is_dealt_out_all_the_same(poptorch):
    executor = poptorch.inferenceModel(RowSum(), poptorch.Options().deviceIterations(2))

    assert executor(torch.eye(4)).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(("iterations", "replicas"), [(6, 1), (1, 6), (3, 2)])
def test_all_outputs_have_the_order_of_the_inputs(poptorch, iterations, replicas):
    executor = poptorch.inferenceModel(nn.Identity(), make_options(poptorch, iterations=iterations, replicas=replicas))

    assert executor(torch.arange(12)).tolist() == list(range(12))


def test_steps_take_consecutive_rows(poptorch):
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(1))
    model.forward = lambda x: (model.weight + 0, poptorch.identity_loss(-(model.weight * x).sum(), "none"))
    options = make_options(poptorch, iterations=2, accumulation=2)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=1.0))

    weights, _ = executor(torch.tensor([1.0, 3.0, 10.0, 30.0]))

    assert weights.tolist() == [0.0, 0.0, 2.0, 2.0]
    assert model.weight.item() == 22.0


# -- laws


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@settings(max_examples=8)
@given(
    iterations=st.integers(1, 3),
    accumulation=st.integers(1, 3),
    replicas=st.integers(1, 3),
    micro_batch=st.integers(1, 3),
)
def test_a_call_is_as_many_eager_steps_on_large_batches(optimizer, iterations, accumulation, replicas, micro_batch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    eager = copy.deepcopy(model)
    eager_optimizer = OPTIMIZERS[optimizer](torch.optim, eager.parameters())
    samples_per_step = micro_batch * accumulation * replicas
    x, y = torch.randn(iterations * samples_per_step, 3), torch.randn(iterations * samples_per_step, 2)

    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, y):
            return nn.functional.mse_loss(self.model(x), y)

    simulated = simulator.trainingModel(
        Task(),
        make_options(simulator, iterations=iterations, accumulation=accumulation, replicas=replicas),
        OPTIMIZERS[optimizer](simulator.optim, model.parameters()),
    )
    simulated(x, y)
    for x_step, y_step in zip(x.split(samples_per_step), y.split(samples_per_step)):
        eager_optimizer.zero_grad()
        nn.functional.mse_loss(eager(x_step), y_step).backward()
        eager_optimizer.step()

    for ours, theirs in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mean", [True, False])
def test_gradients_are_averaged_or_summed_over_accumulation_and_replicas(poptorch, mean):
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(1))
    model.forward = lambda x: poptorch.identity_loss(-(model.weight * x).sum(), "none")
    options = make_options(poptorch, accumulation=2, replicas=2)
    kind = poptorch.ReductionType.Mean if mean else poptorch.ReductionType.Sum
    options.Training.accumulationAndReplicationReductionType(kind)

    poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=1.0))(torch.ones(4))

    assert model.weight.item() == (1.0 if mean else 4.0)


@pytest.mark.parametrize("strategy", ["Running", "Post"])
def test_the_mean_strategy_does_not_change_the_result(poptorch, regression, batch, strategy):
    options = make_options(poptorch, accumulation=2)
    strategies = poptorch.MeanReductionStrategy
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(getattr(strategies, strategy))
    expected = regression(*batch)[1].item()

    losses = poptorch.trainingModel(regression, options)(*batch)[1]

    torch.testing.assert_close(losses.mean().item(), expected)
