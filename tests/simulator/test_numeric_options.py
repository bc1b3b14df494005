"""Options that change numbers: exceptions, rounding, loss scaling, synthetic data, strided groups of channels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

EXCEPTIONS = {
    "division by zero": (lambda x: x / 0, 1.0),
    "zero times infinity": (lambda x: x * 0, float("inf")),
    "root of a negative number": (torch.sqrt, -1.0),
    "comparison with NaN": (lambda x: x > 0, float("nan")),
    "equality with NaN": (lambda x: x == x, float("nan")),
    "overflow": (torch.exp, 1e4),
}


def executor_of(poptorch, forward, options=None):
    model = nn.Module()
    model.forward = lambda x: forward(x)
    return poptorch.inferenceModel(model, options)


# -- floating-point exceptions


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_floating_point_exceptions_raise_when_they_are_on(poptorch, name):
    forward, value = EXCEPTIONS[name]
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)

    with pytest.raises(poptorch.Error):
        executor_of(poptorch, forward, options)(torch.tensor([value]))


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("is_set", [True, False])
def test_floating_point_exceptions_are_off_by_default(poptorch, name, is_set):
    forward, value = EXCEPTIONS[name]
    options = poptorch.Options()
    if is_set:
        options.Precision.enableFloatingPointExceptions(False)

    assert executor_of(poptorch, forward, options)(torch.tensor([value])).shape == (1,)


def test_an_exception_in_the_backward_pass_raises_too(poptorch):
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return torch.ops.poptorch.identity_loss(torch.sqrt(self.weight * x), 0)

    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)

    with pytest.raises(poptorch.Error, match="Floating-point exception"):
        poptorch.trainingModel(Root(), options)(torch.ones(1))


def test_ordinary_training_raises_no_exception(poptorch, regression, batch):
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)

    output, loss = poptorch.trainingModel(regression, options)(*batch)

    assert output.isfinite().all()
    assert loss.isfinite()


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.masked_fill(x > 0, float("-inf")),
        lambda x: x + torch.full((2,), float("inf"), device=x.device),
        lambda x: torch.softmax(x.masked_fill(x > 1, float("-inf")), 0),
    ],
)
def test_infinities_that_the_program_asks_for_are_no_exception(poptorch, forward):
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)

    assert executor_of(poptorch, forward, options)(torch.tensor([1.0, 2.0])).shape == (2,)


# -- synthetic data


def test_synthetic_data_takes_the_place_of_the_hosts(poptorch):
    options = poptorch.Options().enableSyntheticData(True)
    executor = executor_of(poptorch, lambda x, *_: x * 1, options)

    first, second = executor(torch.zeros(100)), executor(torch.ones(100))

    assert torch.equal(first, second)
    assert 0.5 < first.std() < 1.5


def test_synthetic_integers_are_valid_indices(poptorch):
    options = poptorch.Options().enableSyntheticData(True)

    rows = poptorch.inferenceModel(nn.Embedding(3, 2), options)(torch.tensor([1, 2]))

    assert rows.shape == (2, 2)


def test_without_synthetic_data_the_hosts_is_used(poptorch):
    options = poptorch.Options().enableSyntheticData(False)

    assert executor_of(poptorch, lambda x: x * 2, options)(torch.ones(2)).tolist() == [2.0, 2.0]


# -- stochastic rounding


def half_updates(poptorch, is_on, seed=1):
    model = nn.Module()
    model.weight = nn.Parameter(torch.full((4000,), 1.0, dtype=torch.half))
    model.forward = lambda x: torch.ops.poptorch.identity_loss(model.weight * x, 0)
    options = poptorch.Options().randomSeed(seed)
    options.Precision.enableStochasticRounding(is_on)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=2.0**-12))
    executor(torch.ones(4000, dtype=torch.half))
    return model.weight.detach().float()


def test_updates_below_half_a_step_are_lost_when_rounding_to_nearest(poptorch):
    assert (half_updates(poptorch, False) == 1.0).all()


def test_stochastic_rounding_keeps_small_updates_on_average(poptorch):
    weights = half_updates(poptorch, True)

    assert set(weights.tolist()) == {1.0, 1.0 - 2.0**-11}
    assert weights.mean().item() == pytest.approx(1.0 - 2.0**-12, abs=2.0**-15)


def test_stochastic_rounding_follows_the_random_seed(poptorch):
    assert torch.equal(half_updates(poptorch, True), half_updates(poptorch, True))
    assert not torch.equal(half_updates(poptorch, True), half_updates(poptorch, True, seed=2))


# -- automatic loss scaling


def scaled_training(poptorch, regression, *, loss_scaling=1.0, is_on=True):
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(is_on)
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.01, loss_scaling=loss_scaling)
    return optimizer, poptorch.trainingModel(regression, options, optimizer)


def factor(optimizer):
    return optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"].item()


def test_the_factor_of_the_loss_scaling_starts_at_one(poptorch, regression, batch):
    optimizer, executor = scaled_training(poptorch, regression.half())

    executor.compile(*(tensor.half() for tensor in batch))

    assert factor(optimizer) == 1.0


def test_the_factor_grows_while_half_gradients_have_room(poptorch, regression, batch):
    optimizer, executor = scaled_training(poptorch, regression.half())
    factors = []

    for _ in range(3):
        executor(*(tensor.half() for tensor in batch))
        factors.append(factor(optimizer))

    assert factors == [2.0, 4.0, 8.0]


def test_the_factor_shrinks_when_half_gradients_run_out_of_range(poptorch, regression, batch):
    optimizer, executor = scaled_training(poptorch, regression.half(), loss_scaling=32768.0)

    executor(*(tensor.half() for tensor in batch))

    assert factor(optimizer) == 0.5


def test_the_scaling_does_not_change_the_update(poptorch, regression, batch):
    import copy

    models = [copy.deepcopy(regression), copy.deepcopy(regression)]
    for model, is_on in zip(models, (True, False)):
        _optimizer, executor = scaled_training(poptorch, model.half(), is_on=is_on)
        for _ in range(4):
            executor(*(tensor.half() for tensor in batch))

    for one, other in zip(*(model.parameters() for model in models)):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=2e-3, atol=2e-3)


def test_the_loss_comes_back_unscaled(poptorch, regression, batch):
    _optimizer, executor = scaled_training(poptorch, regression, loss_scaling=8.0)

    output, loss = executor(*batch)

    torch.testing.assert_close(loss, nn.functional.mse_loss(output, batch[1]))


def test_single_precision_keeps_its_scaling(poptorch, regression, batch):
    optimizer, executor = scaled_training(poptorch, regression)

    executor(*batch)

    assert factor(optimizer) == 1.0


def test_there_is_no_factor_without_automatic_scaling(poptorch, regression, batch):
    optimizer, executor = scaled_training(poptorch, regression, is_on=False)

    executor(*batch)

    assert "lossScaleUpdateFactor" not in optimizer.state_dict()["ipu_state"]


# -- group normalisation


@pytest.mark.parametrize("is_strided", [True, False])
def test_groups_of_channels_are_strided_on_demand(poptorch, is_strided):
    norm, x = nn.GroupNorm(2, 6), torch.randn(2, 6, 3, 3)
    nn.init.uniform_(norm.weight)
    nn.init.uniform_(norm.bias)
    options = poptorch.Options()
    options._Popart.set("groupNormStridedChannelGrouping", is_strided)

    result = poptorch.inferenceModel(norm, options)(x)

    strided = torch.cat([x[:, 0::2], x[:, 1::2]], 1)
    parts = nn.functional.group_norm(strided, 2)
    expected = torch.stack([parts[:, :3], parts[:, 3:]], 2).flatten(1, 2)
    expected = expected * norm.weight.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
    torch.testing.assert_close(result, expected.detach() if is_strided else norm(x).detach(), rtol=1e-5, atol=1e-5)


def test_a_stable_norm_gives_the_same_result(poptorch):
    norm, x = nn.LayerNorm(4), torch.randn(2, 4)

    result = poptorch.inferenceModel(norm, poptorch.Options().enableStableNorm(True))(x)

    torch.testing.assert_close(result, norm(x).detach())


# -- gradients in half precision


class HalfWeight(nn.Module):
    """Its gradient is the input, in half precision."""

    def __init__(self, value=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([value], dtype=torch.half))

    def forward(self, x):
        return torch.ops.poptorch.identity_loss(self.weight * x, 0)


def update_from(poptorch, gradients, *, strategy=None, **settings):
    """Return how much one step with rate 1 lowers a weight of zero that has these gradients."""
    model = HalfWeight()
    options = poptorch.Options()
    options.Training.gradientAccumulation(len(gradients))
    if strategy is not None:
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(
            getattr(poptorch.MeanReductionStrategy, strategy)
        )
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, **settings)
    poptorch.trainingModel(model, options, optimizer)(torch.tensor(gradients, dtype=torch.half))
    return -model.weight.item()


@pytest.mark.parametrize("strategy", [None, "Running", "Post", "PostAndLoss"])
def test_the_mean_does_not_depend_on_where_it_is_taken(poptorch, strategy):
    assert update_from(poptorch, [1.0, 2.0, 4.0, 5.0], strategy=strategy) == 3.0


def test_half_gradients_add_up_in_single_precision(poptorch):
    assert update_from(poptorch, [2048.0, 1.0, 1.0, 2.0]) == pytest.approx(513.0, abs=0.5)


def test_small_half_gradients_are_not_divided_before_they_add_up(poptorch):
    smallest = 2.0**-24

    assert update_from(poptorch, [smallest] * 4) == smallest


def test_a_running_mean_divides_small_half_gradients_away(poptorch):
    assert update_from(poptorch, [2.0**-24] * 4, strategy="Running") == 0.0


def test_large_half_gradients_add_up_to_more_than_half_precision_holds(poptorch):
    assert update_from(poptorch, [60000.0] * 4) == 60000.0


def test_half_accumulators_take_a_running_mean_within_their_range(poptorch):
    assert update_from(poptorch, [60000.0] * 4, accum_type=torch.half) == 60000.0
