"""What a step's micro-batches stand for: one large batch where no module and no loss looks at more than one sample."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting import PlainTraining, PortOptions
from porting.verify.plain_side import choose_comparison
from porting.verify.plain_training import Grouping

OPTIONS = PortOptions(micro_batch=4, accumulation=2, output_mode="all")


def choose(model, *, options=OPTIONS, loss=F.cross_entropy, labels=None):
    torch.manual_seed(0)
    training = PlainTraining(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    labels = torch.randint(0, 3, (8,)) if labels is None else labels
    return choose_comparison(training, ((torch.randn(8, 6), labels), {}), options, seed=0)


def test_samples_on_their_own_are_one_large_batch():
    comparison = choose(nn.Linear(6, 3))

    assert comparison.grouping.is_large
    assert "one large batch a step, which 2 micro-batches stand for" in comparison.text


def test_batchnorm_looks_at_its_micro_batch():
    comparison = choose(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))

    assert not comparison.grouping.is_large
    assert "`1` (1 like it) takes its statistics from each micro-batch" in comparison.text


def test_a_mean_over_what_is_not_ignored_is_not_that_of_its_parts():
    def loss(output, label):
        return F.cross_entropy(output, label, ignore_index=0)

    comparison = choose(nn.Linear(6, 3), loss=loss, labels=torch.tensor([0, 0, 0, 1, 2, 1, 2, 1]))

    assert not comparison.grouping.is_large


def test_a_sum_is_told_from_a_mean():
    comparison = choose(nn.Linear(6, 3), loss=nn.CrossEntropyLoss(reduction="sum"))

    assert comparison.training.accumulated == "sum"
    assert comparison.grouping.is_large


def test_random_numbers_are_drawn_for_each_micro_batch():
    comparison = choose(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)))

    assert comparison.draws
    assert not comparison.grouping.is_large


@pytest.mark.parametrize("change", [{"precision": "mixed"}, {"output_mode": "final"}])
def test_micro_batches_stay_where_each_has_to_be_seen(change):
    assert not choose(nn.Linear(6, 3), options=OPTIONS.replace(**change)).grouping.is_large


def test_one_micro_batch_is_the_batch():
    comparison = choose(nn.Linear(6, 3), options=PortOptions())

    assert comparison.text == "the same batch a step"


def test_replicas_have_micro_batches_of_their_own():
    grouping = Grouping.of(PortOptions(micro_batch=1, accumulation=2, replicas=2, device_iterations=3))

    assert (grouping.steps_per_call, grouping.micro_batches_per_step, grouping.replicas) == (3, 4, 2)


def test_nothing_of_the_training_changes():
    model = nn.Linear(6, 3)
    before = model.weight.clone()
    stream = torch.get_rng_state()

    torch.set_rng_state(stream)
    choose(model)

    assert torch.equal(model.weight, before)
    assert model.weight.grad is None
