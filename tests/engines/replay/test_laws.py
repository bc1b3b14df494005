"""Laws of a call, for any batch: accumulation is one large batch, replicas average, iterations repeat."""

from __future__ import annotations

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

OPTIMIZERS = {
    "sgd": ("SGD2", {}),
    "sgd with momentum": ("SGD2", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": ("ADAM", {"learning_rate": 0.01, "eps": 1e-3}),
    "adamw": ("ADAMW", {"learning_rate": 0.01, "eps": 1e-3, "weight_decay": 0.1}),
    "lamb": ("LAMB", {"learning_rate": 0.01, "eps": 1e-3}),
    "rmsprop": ("RMSPROP", {"learning_rate": 0.01, "eps": 1e-3}),
}
each_optimizer = pytest.mark.parametrize(("kind", "values"), OPTIMIZERS.values(), ids=OPTIMIZERS.keys())

# each example captures and trains a model twice
few_examples = hypothesis.settings(max_examples=20)
counts = st.integers(1, 4)
seeds = st.integers(0, 2**16)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def batch(seed, rows):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator), torch.randn(rows, 2, generator=generator)


def trained(device, settings, seed, rows, *, calls=1, micro=None, replicas=1, **plan):
    """Train the model on `calls` batches of `rows` rows; the graph is captured for `micro` rows."""
    on_device = device(make_model(), *batch(0, micro or rows), loss=F.mse_loss, replicas=replicas)
    for call in range(calls):
        on_device.run(*batch(seed + call, rows), settings=settings, replicas=replicas, **plan)
    return on_device.weights()


def assert_close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(2)
@each_optimizer
@few_examples
@given(seed=seeds, accumulation=counts, micro=counts)
def test_accumulation_equals_one_large_batch(device, settings, kind, values, seed, accumulation, micro):
    group, rows = settings(kind, **values), micro * accumulation

    accumulated = trained(device, group, seed, rows, calls=2, micro=micro, accumulation=accumulation)
    at_once = trained(device, group, seed, rows, calls=2)

    assert_close(accumulated, at_once)


@pytest.mark.sampled(2)
@each_optimizer
@few_examples
@given(seed=seeds, replicas=counts, micro=counts)
def test_replicas_average_their_gradients(device, settings, kind, values, seed, replicas, micro):
    group, rows = settings(kind, **values), micro * replicas

    replicated = trained(device, group, seed, rows, calls=2, micro=micro, replicas=replicas)
    at_once = trained(device, group, seed, rows, calls=2)

    assert_close(replicated, at_once)


@pytest.mark.sampled(2)
@each_optimizer
@few_examples
@given(seed=seeds, accumulation=counts, replicas=counts)
def test_replicas_and_accumulation_may_be_exchanged(device, settings, kind, values, seed, accumulation, replicas):
    group, rows = settings(kind, **values), 2 * accumulation * replicas

    both = trained(device, group, seed, rows, micro=2, replicas=replicas, accumulation=accumulation)
    accumulated = trained(device, group, seed, rows, micro=2, accumulation=accumulation * replicas)

    assert_close(both, accumulated)


@pytest.mark.sampled(2)
@each_optimizer
@few_examples
@given(seed=seeds, iterations=counts, accumulation=counts)
def test_iterations_equal_repeated_calls(device, settings, kind, values, seed, iterations, accumulation):
    group, rows = settings(kind, **values), 2 * accumulation
    x, y = batch(seed, rows * iterations)
    repeated = device(make_model(), x[:2], y[:2], loss=F.mse_loss)
    at_once = device(make_model(), x[:2], y[:2], loss=F.mse_loss)

    at_once.run(x, y, settings=group, iterations=iterations, accumulation=accumulation)
    for rows_x, rows_y in zip(x.split(rows), y.split(rows)):
        repeated.run(rows_x, rows_y, settings=group, accumulation=accumulation)

    assert all(torch.equal(weight, repeated.weights()[name]) for name, weight in at_once.weights().items())


@few_examples
@given(seed=seeds, accumulation=counts, replicas=counts)
def test_sum_reduction_is_mean_reduction_with_a_larger_step(device, settings, seed, accumulation, replicas):
    factor = accumulation * replicas
    shape = {"rows": 2 * factor, "micro": 2, "replicas": replicas, "accumulation": accumulation}

    summed = trained(device, settings(learning_rate=0.02), seed, mean_reduction=False, **shape)
    averaged = trained(device, settings(learning_rate=0.02 * factor), seed, **shape)

    assert_close(summed, averaged)


@few_examples
@given(seed=seeds, accumulation=counts, exponent=st.integers(1, 10))
def test_loss_scaling_is_neutral(device, settings, seed, accumulation, exponent):
    shape = {"rows": 2 * accumulation, "micro": 2, "accumulation": accumulation}

    scaled = trained(device, settings(loss_scaling=2.0**exponent), seed, **shape)
    plain = trained(device, settings(), seed, **shape)

    assert all(torch.equal(weight, plain[name]) for name, weight in scaled.items())


@few_examples
@given(seed=seeds, iterations=counts, accumulation=counts, replicas=counts)
def test_all_outputs_are_those_of_the_whole_batch(device, seed, iterations, accumulation, replicas):
    model = make_model()
    x, _ = batch(seed, 2 * iterations * accumulation * replicas)
    on_device = device(model, x[:2], mode="inference", replicas=replicas)
    plan = {"iterations": iterations, "accumulation": accumulation, "replicas": replicas}

    (outputs,) = on_device.run(x, output_mode="all", **plan)

    torch.testing.assert_close(outputs, model(x).detach())


@few_examples
@given(seed=seeds, accumulation=counts, replicas=counts)
def test_the_mean_of_all_losses_is_the_loss_of_the_whole_batch(device, settings, seed, accumulation, replicas):
    model = make_model()
    x, y = batch(seed, 3 * accumulation * replicas)
    on_device = device(model, x[:3], y[:3], loss=F.mse_loss, replicas=replicas)
    plan = {"accumulation": accumulation, "replicas": replicas, "output_mode": "all"}

    _outputs, losses = on_device.run(x, y, settings=settings(), **plan)

    torch.testing.assert_close(losses.mean(), F.mse_loss(model(x), y).detach())
