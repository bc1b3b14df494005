"""A plain training makes one optimizer step of its micro-batches, with buffers and random numbers of its own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from porting.verify.plain_training import PlainRun, PlainTraining, cut_micro_batches


def plain_run(model, *, replicas=1, **settings):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = PlainTraining(model, nn.MSELoss(), optimizer, **settings)
    return PlainRun(training, replicas, torch.get_rng_state())


def make_batch(rows=8):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, 3, generator=generator), torch.randn(rows, 2, generator=generator)


def test_accumulated_micro_batches_are_one_large_batch():
    model = nn.Linear(3, 2)
    whole, cut = plain_run(copy.deepcopy(model)), plain_run(model)

    expected = whole.step([(make_batch(), {})])
    step = cut.step(cut_micro_batches(make_batch(), {}, 4))

    for name, gradient in step.gradients.items():
        torch.testing.assert_close(gradient, expected.gradients[name])
    torch.testing.assert_close(torch.stack(step.losses).mean(), expected.losses[0])


def test_a_sum_of_gradients_is_as_many_times_their_mean():
    model = nn.Linear(3, 2)
    mean, total = plain_run(copy.deepcopy(model)), plain_run(model, accumulated="sum")
    micro_batches = cut_micro_batches(make_batch(), {}, 4)

    expected, step = mean.step(micro_batches), total.step(micro_batches)

    torch.testing.assert_close(step.gradients["weight"], 4 * expected.gradients["weight"])


def test_the_hosts_random_stream_goes_on_as_if_nothing_had_been_drawn():
    run = plain_run(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)))
    before = torch.get_rng_state()

    run.step([(make_batch(), {})])

    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(run.random_state, before)


def test_each_replica_has_buffers_of_its_own():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    alone = copy.deepcopy(model)
    first, second = cut_micro_batches(make_batch(), {}, 2)

    plain_run(model, replicas=2).step([first, second])
    plain_run(alone).step([first])

    torch.testing.assert_close(model[0].running_mean, alone[0].running_mean)


def test_a_function_of_ones_own_script_computes_the_loss():
    run = plain_run(nn.Linear(3, 2), compute_loss=lambda model, x, y: model(x).sum() * 0 + 7.0)

    assert run.step([(make_batch(), {})]).losses[0].item() == 7.0


@pytest.mark.parametrize("num_parts", [1, 2, 4])
def test_rows_are_cut_and_everything_else_goes_to_all(num_parts):
    x, scale = torch.arange(8), torch.tensor(2.0)

    parts = cut_micro_batches([x, "text"], {"scale": scale}, num_parts)

    assert torch.equal(torch.cat([args[0] for args, _kwargs in parts]), x)
    assert all(args[1] == "text" and kwargs["scale"] is scale for args, kwargs in parts)
