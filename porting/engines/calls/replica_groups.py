"""Which replicas share an input or a weight."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReplicaGroups"]


@dataclass(frozen=True)
class ReplicaGroups:
    """`replicas` in groups of `size`, neighbours together or, `strided`, as far apart as there are groups.

    `returns_all` says that the host gets the value of every replica, not only of each group's first one.

    >>> groups = ReplicaGroups(replicas=4, size=2)
    >>> [groups.group_of(replica) for replica in range(4)]
    [0, 0, 1, 1]
    >>> groups = ReplicaGroups(replicas=4, size=2, strided=True)
    >>> [groups.group_of(replica) for replica in range(4)]
    [0, 1, 0, 1]
    """

    replicas: int
    size: int = 1
    strided: bool = False
    returns_all: bool = False

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return self.replicas // self.size

    def group_of(self, replica: int) -> int:
        """Return the group that a replica belongs to."""
        return replica % self.num_groups if self.strided else replica // self.size

    def first_replica(self, group: int) -> int:
        """Return the replica whose value stands for its group's."""
        return group if self.strided else group * self.size
