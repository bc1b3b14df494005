"""Groups of replicas: who belongs to which, and who speaks for it."""

from __future__ import annotations

import pytest

from porting.engines.calls.replica_groups import ReplicaGroups

SIZES = [(size, strided) for size in (1, 2, 3, 6) for strided in (False, True)]


def test_neighbours_are_together_unless_strided():
    assert [ReplicaGroups(6, 3).group_of(replica) for replica in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [ReplicaGroups(6, 3, strided=True).group_of(replica) for replica in range(6)] == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(("size", "strided"), SIZES)
def test_all_groups_have_the_same_size(size, strided):
    groups = ReplicaGroups(6, size, strided)

    members = [groups.group_of(replica) for replica in range(6)]

    assert sorted(members) == sorted(group for group in range(groups.num_groups) for _ in range(size))


@pytest.mark.parametrize(("size", "strided"), SIZES)
def test_the_first_replica_of_a_group_is_its_first_member(size, strided):
    groups = ReplicaGroups(6, size, strided)
    members = [groups.group_of(replica) for replica in range(6)]

    assert [groups.first_replica(group) for group in range(groups.num_groups)] == [
        members.index(group) for group in range(groups.num_groups)
    ]
