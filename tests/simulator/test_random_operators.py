"""Random numbers of every kind: their mean and spread, their limits, and that each run draws anew."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn

SIZE = (20_000,)
ZEROS = torch.zeros(SIZE)

# The call, the mean and the standard deviation that it is to have.
DRAWS = {
    "rand": (lambda x: torch.rand(SIZE), 0.5, 1 / math.sqrt(12)),
    "randn": (lambda x: torch.randn(SIZE), 0.0, 1.0),
    "rand_like": (lambda x: torch.rand_like(x), 0.5, 1 / math.sqrt(12)),
    "randn_like": (lambda x: torch.randn_like(x), 0.0, 1.0),
    "randint": (lambda x: torch.randint(10, SIZE), 4.5, math.sqrt(99 / 12)),
    "randint of floats": (lambda x: torch.randint(3, 10, SIZE, dtype=torch.float32), 6.0, 2.0),
    "normal": (lambda x: torch.normal(1.0, 2.0, SIZE), 1.0, 2.0),
    "normal of means": (lambda x: torch.normal(x + 1, 2.0), 1.0, 2.0),
    "normal of deviations": (lambda x: torch.normal(1.0, x + 2), 1.0, 2.0),
    "normal of both": (lambda x: torch.normal(x + 1, x + 2), 1.0, 2.0),
    "normal_": (lambda x: torch.empty(SIZE).normal_(1.0, 2.0), 1.0, 2.0),
    "uniform_": (lambda x: torch.empty(SIZE).uniform_(-1.0, 2.0), 0.5, 3 / math.sqrt(12)),
    "random_": (lambda x: torch.empty(SIZE).random_(0, 10), 4.5, math.sqrt(99 / 12)),
    "random_ of integers": (lambda x: torch.empty(SIZE, dtype=torch.int32).random_(10), 4.5, math.sqrt(99 / 12)),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), 0.3, math.sqrt(0.21)),
    "bernoulli of a number": (lambda x: torch.bernoulli(x, 0.3), 0.3, math.sqrt(0.21)),
    "bernoulli_": (lambda x: torch.empty(SIZE).bernoulli_(0.3), 0.3, math.sqrt(0.21)),
    "bernoulli_ of probabilities": (lambda x: torch.empty(SIZE).bernoulli_(x + 0.3), 0.3, math.sqrt(0.21)),
    "exponential_": (lambda x: torch.empty(SIZE).exponential_(2.0), 0.5, 0.5),
    "randperm": (lambda x: torch.randperm(1000) / 1000, 0.4995, 1 / math.sqrt(12)),
    "dropout": (lambda x: F.dropout(x + 1, 0.3), 1.0, math.sqrt(0.3 / 0.7)),
    "feature dropout": (lambda x: F.dropout2d((x + 1).reshape(4, 5000, 1, 1), 0.3), 1.0, math.sqrt(0.3 / 0.7)),
    "alpha dropout": (lambda x: F.alpha_dropout(torch.randn(SIZE), 0.3, True), 0.0, 1.0),
    "rrelu": (lambda x: F.rrelu(x - 1, 0.1, 0.3, training=True), -0.2, 0.2 / math.sqrt(12)),
    "Normal": (lambda x: distributions.Normal(1.0, 2.0).sample(SIZE), 1.0, 2.0),
    "Normal, reparametrised": (lambda x: distributions.Normal(x + 1, 2.0).rsample(), 1.0, 2.0),
    "Uniform": (lambda x: distributions.Uniform(-1.0, 2.0).sample(SIZE), 0.5, 3 / math.sqrt(12)),
    "Exponential": (lambda x: distributions.Exponential(2.0).sample(SIZE), 0.5, 0.5),
    "Bernoulli": (lambda x: distributions.Bernoulli(0.3).sample(SIZE), 0.3, math.sqrt(0.21)),
}
LIMITS = {
    "rand": (lambda x: torch.rand(SIZE), 0.0, 1.0),
    "randint": (lambda x: torch.randint(3, 10, SIZE), 3, 9),
    "uniform_": (lambda x: torch.empty(SIZE).uniform_(-1.0, 2.0), -1.0, 2.0),
    "random_": (lambda x: torch.empty(SIZE).random_(3, 10), 3, 9),
    "rrelu": (lambda x: F.rrelu(x - 1, 0.1, 0.3, training=True), -0.3, -0.1),
    "exponential_": (lambda x: torch.empty(SIZE).exponential_(), 0.0, math.inf),
}
IN_HALF = {
    "rand": lambda x: torch.rand(SIZE, dtype=torch.float16),
    "randn": lambda x: torch.randn(SIZE, dtype=x.dtype),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "uniform_": lambda x: torch.empty_like(x).uniform_(),
    "bernoulli": lambda x: torch.bernoulli(x + 0.5),
    "dropout": lambda x: F.dropout(x + 1),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
}


def executor_of(poptorch, forward):
    model = nn.Module()
    model.forward = forward
    return poptorch.inferenceModel(model, poptorch.Options().randomSeed(42))


@pytest.mark.parametrize("name", DRAWS)
def test_mean_and_deviation_are_as_asked_for(poptorch, name):
    call, mean, deviation = DRAWS[name]

    drawn = executor_of(poptorch, call)(ZEROS).float()

    assert drawn.mean().item() == pytest.approx(mean, rel=0.1, abs=0.03)
    assert drawn.std().item() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("name", DRAWS)
def test_each_run_draws_anew(poptorch, name):
    executor = executor_of(poptorch, DRAWS[name][0])

    assert not torch.equal(executor(ZEROS), executor(ZEROS))


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_kept(poptorch, name):
    call, low, high = LIMITS[name]

    drawn = executor_of(poptorch, call)(ZEROS)

    assert low <= drawn.min().item() <= drawn.max().item() <= high


@pytest.mark.parametrize("name", IN_HALF)
def test_numbers_may_be_drawn_in_half_precision(poptorch, name):
    drawn = executor_of(poptorch, IN_HALF[name])(ZEROS.half())

    assert drawn.dtype == torch.float16
    assert drawn.float().std() > 0.1


@pytest.mark.parametrize("call", [lambda x: torch.randint(9, SIZE), lambda x: torch.randperm(9)])
def test_whole_numbers_are_32_bit(poptorch, call):
    assert executor_of(poptorch, call)(ZEROS).dtype == torch.int32


def test_a_permutation_has_every_number_once(poptorch):
    drawn = executor_of(poptorch, lambda x: torch.randperm(100))(ZEROS)

    assert drawn.sort().values.tolist() == list(range(100))


def test_distributions_do_not_check_their_parameters(poptorch):
    before = distributions.Distribution._validate_args

    result = executor_of(poptorch, lambda x: distributions.Normal(x, x + 1).log_prob(x))(ZEROS)

    torch.testing.assert_close(result, distributions.Normal(ZEROS, ZEROS + 1).log_prob(ZEROS))
    assert distributions.Distribution._validate_args is before
