"""Runs of plain PyTorch: equal to the user's own loop, on copies, and each perturbation differs in what it says."""

from __future__ import annotations

import copy
import random

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

from porting import PlainTraining
from porting.verify.calls import Calls
from porting.verify.plain_runs import Perturbation, join_outputs, run_plain, widen_training
from porting.verify.plain_training import Grouping
from porting.verify.plain_training import PlainTraining as Training

NUM_STEPS = 4
ONE = Grouping(steps_per_call=1, micro_batches_per_step=1, replicas=1)


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return PlainTraining(model, F.cross_entropy, optimizer, StepLR(optimizer, 1, 0.5))


def calls(num=NUM_STEPS):
    generator = torch.Generator().manual_seed(1)
    return Calls(
        ((torch.randn(8, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)), {})
        for _ in range(num)
    )


def run_users_loop(training):
    """Train as a script does; return the losses and the learning rates."""
    torch.manual_seed(5)
    losses, rates = [], []
    for (x, y), _kwargs in calls():
        rates.append(training.optimizer.param_groups[0]["lr"])
        training.optimizer.zero_grad()
        loss = training.loss(training.model(x), y)
        loss.backward()
        training.optimizer.step()
        training.scheduler.step()
        losses.append(loss.item())
    return losses, rates


def test_a_run_is_the_users_own_loop():
    losses, rates = run_users_loop(build())

    record = run_plain(build(), calls(), ONE, seed=5)

    assert [record.losses[step] for step in range(1, NUM_STEPS + 1)] == [[loss] for loss in losses]
    assert [record.rates[step][0] for step in range(1, NUM_STEPS + 1)] == rates


def test_the_users_training_is_as_before():
    training = build()
    before = copy.deepcopy(training.model.state_dict())
    streams = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()

    run_plain(training, calls(), ONE, seed=5)

    assert all(torch.equal(before[name], value) for name, value in training.model.state_dict().items())
    assert not training.optimizer.state
    assert training.scheduler.last_epoch == 0
    assert torch.equal(streams[0], torch.get_rng_state())
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == streams[1:]


@pytest.mark.parametrize(
    "perturbation",
    [
        Perturbation("bits", changes_bits=1, size=2.0**-22),
        Perturbation("rounded", rounding=1, size=2.0**-22),
        Perturbation("float64", is_double=True),
    ],
    ids=lambda perturbation: perturbation.name,
)
def test_a_perturbation_differs_by_rounding_alone(perturbation):
    plain, varied = (
        run_plain(build(), calls(), ONE, seed=5, perturbation=one) for one in (Perturbation("plain"), perturbation)
    )

    assert varied.losses != plain.losses
    for step, losses in plain.losses.items():
        assert varied.losses[step] == pytest.approx(losses, rel=1e-3)


def test_a_permuted_batch_has_the_same_mean():
    training = build()
    training.model[2].p = 0.0

    plain, permuted = (
        run_plain(training, calls(1), ONE, seed=5, perturbation=one)
        for one in (Perturbation("plain"), Perturbation("", permutes=1))
    )

    assert permuted.losses[1] == pytest.approx(plain.losses[1], rel=1e-5)
    assert ("output", 1) not in permuted.sketches


def test_an_error_ends_a_run_and_is_told():
    class Failing(nn.Linear):
        def forward(self, x):
            self.count = getattr(self, "count", 0) + 1
            if self.count == 3:
                raise ValueError("no more")
            return super().forward(x)

    model = Failing(6, 3)
    training = Training(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))

    record = run_plain(training, calls(), ONE, seed=5)

    assert (record.num_steps, record.ended_by) == (2, "ValueError: no more")


def test_weights_in_half_are_trained_in_single():
    model = nn.Linear(2, 2).half()
    training = Training(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))

    wide = widen_training(training)

    assert wide.model.weight.dtype is torch.float32
    assert model.weight.dtype is torch.float16
    assert wide.optimizer.param_groups[0]["params"][0] is wide.model.weight


def test_outputs_are_joined_by_their_places():
    joined = join_outputs([(torch.ones(2, 3), {"a": torch.ones(2)}), (torch.ones(1, 3), {"a": torch.ones(1)})])

    assert {name: list(value.shape) for name, value in joined.items()} == {"output 0": [3, 3], "output 1": [3]}
