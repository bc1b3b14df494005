"""How parameters with a value for each group of replicas are found and traced."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.engines.calls.call_plan import ReplicaGroups
from porting.simulator._weights.replica_parameters import collect_replica_groups, put_one_group_in_place
from porting.simulator.enums import CommGroupType, VariableRetrievalMode
from porting.simulator.errors import Error

ONE, ALL = VariableRetrievalMode.OnePerGroup, VariableRetrievalMode.AllReplicas


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.second.weight = self.first.weight


@pytest.mark.parametrize(
    ("asked", "groups"),
    [
        ((CommGroupType.NoGrouping, 0, ONE), ReplicaGroups(4, 1)),
        ((CommGroupType.Consecutive, 2, ONE), ReplicaGroups(4, 2)),
        ((CommGroupType.Orthogonal, 2, ALL), ReplicaGroups(4, 2, strided=True, returns_all=True)),
        ((CommGroupType.All, 0, ONE), ReplicaGroups(4, 4)),
    ],
)
def test_groups_are_those_that_were_asked_for(asked, groups):
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(groups.num_groups, 3))

    assert collect_replica_groups(model, {"weight": asked}, 4) == {"weight": groups}


def test_a_parameter_is_found_by_any_of_its_names():
    asked = {"second.weight": (CommGroupType.NoGrouping, 0, ONE)}

    assert list(collect_replica_groups(Tied(), asked, 2)) == ["first.weight"]


def test_nothing_asked_is_nothing_found():
    assert collect_replica_groups(Tied(), {}, 2) == {}


@pytest.mark.parametrize("shards", [-2, 3, 8])
def test_groups_that_do_not_divide_the_replicas_are_refused(shards):
    asked = {"first.weight": (CommGroupType.Consecutive, shards, ONE)}

    with pytest.raises(Error, match="cannot be put into groups"):
        collect_replica_groups(Tied(), asked, 4)


def test_one_group_takes_the_place_of_all_under_every_name():
    model = Tied()
    whole = model.first.weight

    with put_one_group_in_place(model, ["first.weight"]):
        sliced = model.first.weight
        assert sliced is model.second.weight
        assert torch.equal(sliced, whole[0])
        assert sliced.requires_grad

    assert model.first.weight is whole
    assert model.second.weight is whole


def test_the_parameters_are_back_after_an_error():
    model = Tied()
    whole = model.first.weight

    with pytest.raises(KeyError), put_one_group_in_place(model, ["first.weight"]):
        raise KeyError

    assert model.first.weight is whole
