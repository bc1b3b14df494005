"""Stand in for PopDist: which instance of a program this is, and how many replicas it and the others have.

Instances are the processes that `porting run --num-instances` or torchrun has started. Without either there is one
instance with one replica.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Optional

import torch

from ....support.process import this_instance
from ..._compile import process_group
from ..._device.device_target import count_reserved_ipus, count_simulated_ipus, list_devices
from .. import refuse_unknown_names

__all__ = [
    "checkNumIpusPerReplica",
    "execute_on_instances",
    "finalize",
    "getDeviceId",
    "getInstanceIndex",
    "getLocalInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "synchronize",
]


def init() -> None:
    """Connect this instance with the others; waits for them."""
    instance = this_instance()
    if instance.size > 1:
        process_group.connect(instance.index, instance.size)


def finalize() -> None:
    """Leave the other instances."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def isPopdistEnvSet() -> bool:
    """Tell whether a launcher started this process as one of several instances."""
    # the vendor's launcher, or torchrun
    return "POPDIST_NUM_TOTAL_REPLICAS" in os.environ or {"WORLD_SIZE", "RANK"} <= set(os.environ)


def getNumInstances() -> int:
    """Return how many processes run the program."""
    return this_instance().size


def getInstanceIndex() -> int:
    """Return which of them this is, from 0."""
    return this_instance().index


def getLocalInstanceIndex() -> int:
    """Return which one this is on its machine, from 0."""
    return this_instance().local_index


def getNumTotalReplicas() -> int:
    """Return how many replicas all instances have together."""
    return _from_environment("POPDIST_NUM_TOTAL_REPLICAS", getNumInstances())


def getNumLocalReplicas() -> int:
    """Return how many replicas this instance has."""
    return _from_environment("POPDIST_NUM_LOCAL_REPLICAS", getNumTotalReplicas() // getNumInstances())


def getReplicaIndexOffset() -> int:
    """Return the number, among all replicas, of the first one of this instance."""
    return _from_environment("POPDIST_REPLICA_INDEX_OFFSET", getInstanceIndex() * getNumLocalReplicas())


def getNumIpusPerReplica() -> int:
    """Return how many IPUs the launcher gave each replica, 1 if it left that to the program."""
    return _from_environment("POPDIST_NUM_IPUS_PER_REPLICA", 1)


def checkNumIpusPerReplica(num_ipus: int) -> None:
    """Raise `RuntimeError` if the launcher gave each replica another number of IPUs than the model takes."""
    given = _from_environment("POPDIST_NUM_IPUS_PER_REPLICA", num_ipus)
    if num_ipus != given:
        raise RuntimeError(
            f"The number of IPUs per replica ({num_ipus}) does not match the value given to the launcher ({given})"
        )


def getDeviceId(num_ipus_per_replica: Optional[int] = None) -> int:
    """Return the number of this instance's device, one with the IPUs of all its replicas.

    Raises RuntimeError if a replica was given another number of IPUs, or if the machine has too few of them.
    """
    per_replica = getNumIpusPerReplica() if num_ipus_per_replica is None else num_ipus_per_replica
    checkNumIpusPerReplica(per_replica)
    wanted = count_reserved_ipus(per_replica * getNumLocalReplicas(), may_round=True)
    table = list_devices(count_simulated_ipus())
    # devices of as many IPUs do not overlap, so that each instance of a machine has one of its own
    devices = [number for number, ipus in enumerate(table) if len(ipus) == wanted]
    index = getLocalInstanceIndex()
    if index >= len(devices):
        raise RuntimeError(
            f"Instance {index} of this machine needs {wanted} IPUs beside those of the instances before it; the "
            f"simulated machine has {count_simulated_ipus()} (PORTING_SIM_IPUS)"
        )
    return devices[index]


def execute_on_instances(instances: Iterable[int], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function` on these instances only and return its result; None on the others."""
    return function(*args, **kwargs) if getInstanceIndex() in set(instances) else None


def synchronize() -> None:
    """Wait until all instances have called this."""
    if getNumInstances() > 1:
        init()
        torch.distributed.barrier()


def _from_environment(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


__getattr__ = refuse_unknown_names("popdist")
