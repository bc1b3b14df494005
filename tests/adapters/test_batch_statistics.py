"""Layers with statistics of the batch: padding that enters them, and replicas that have statistics of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortOptions
from porting.adapters.batch_statistics import note_batchnorm, note_statistics_of_one_replica
from porting.diagnostics import Severity

REPLICAS = PortOptions(replicas=2)


def normed(norm):
    return nn.Sequential(nn.Linear(4, 4), norm, nn.BatchNorm1d(4))


def test_the_first_replicas_statistics_are_noted():
    (finding,) = note_statistics_of_one_replica(normed(nn.BatchNorm1d(4)), REPLICAS)

    assert finding.code == "P011"
    assert finding.notes[0].startswith("`1` and 1 more: each of the 2 replicas")


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (nn.BatchNorm1d(4), PortOptions(accumulation=2)),
        (nn.BatchNorm1d(4), REPLICAS.replace(broadcast_buffers=False)),
        (nn.BatchNorm1d(4).eval(), REPLICAS),
        (nn.BatchNorm1d(4, track_running_stats=False), REPLICAS),
        (nn.LayerNorm(4), REPLICAS),
    ],
    ids=["one replica", "meant", "eval mode", "no statistics", "another layer"],
)
def test_nothing_is_noted_where_there_is_nothing_to_say(model, options):
    assert note_statistics_of_one_replica(model, options) == ()


# padding


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.BatchNorm2d(3), nn.BatchNorm3d(3), nn.SyncBatchNorm(3)])
def test_batchnorm_in_training_is_noted(layer):
    finding = note_batchnorm(nn.Sequential(nn.Linear(3, 3), layer))

    assert (finding.code, finding.severity) == ("B008", Severity.WARNING)
    assert "`1`" in finding.message


def test_many_batchnorms_are_named_in_part():
    finding = note_batchnorm(nn.Sequential(*(nn.BatchNorm1d(2) for _ in range(5))))

    assert "`0`, `1`, `2` and 2 more" in finding.message


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.BatchNorm1d(3)).eval(), nn.GroupNorm(1, 3), nn.LayerNorm(3), nn.InstanceNorm2d(3)]
)
def test_layers_that_look_at_one_sample_are_not_noted(model):
    assert note_batchnorm(model) is None


def test_the_warning_is_true_padding_does_move_the_running_mean():
    real = torch.tensor([[1.0], [2.0]])
    with_padding, without = nn.BatchNorm1d(1), nn.BatchNorm1d(1)

    with_padding(torch.cat([real, real[:1]]))
    without(real)

    assert not torch.allclose(with_padding.running_mean, without.running_mean)
