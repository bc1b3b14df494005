"""Replicas update running statistics of their own, and the port says whose the host gets."""

from __future__ import annotations

import pytest
from torch import nn

from porting import PortOptions
from porting.adapters.running_statistics import note_statistics_of_one_replica

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
