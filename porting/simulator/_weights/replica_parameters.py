"""Handle parameters that have a value for each group of replicas: how a user declares them, and how they are traced.

The host's parameter has the groups along a leading dimension; `forward` sees one group's value without it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Collection, Dict, Iterator, List, MutableMapping, Tuple

from torch import nn

from ...engines.calls.call_plan import ReplicaGroups
from ...host_tensors import host_tensors
from .._options_impl import require
from ..enums import CommGroupType, VariableRetrievalMode
from ..errors import createPoptorchError, native_error
from .weight_owners import make_plain

__all__ = ["ParameterProxy", "PerReplicaParams", "collect_replica_groups", "put_one_group_in_place"]

# What `PoplarExecutor.per_replica_params` holds: the three arguments of `replicaGrouping` by the parameter's name.
PerReplicaParams = Dict[str, Tuple[CommGroupType, int, VariableRetrievalMode]]


class ParameterProxy:
    """A parameter as read from an executor: it has every attribute of the parameter, and its replica grouping."""

    def __init__(self, parameter: nn.Parameter, name: str, grouped: PerReplicaParams) -> None:
        """Represent the `parameter` called `name`; `grouped` has the replica groupings of its executor."""
        self._parameter = parameter
        self._name = name
        self._grouped = grouped

    def replicaGrouping(
        self, comm_group_type: CommGroupType, shards: int, variable_retrieval_mode: VariableRetrievalMode
    ) -> None:
        """Give each group of replicas a value of its own, from the next compilation on.

        `shards` is the size of a group. The parameter has a leading dimension with as many values as there are groups;
        in `forward` each replica sees its own without that dimension.
        """
        require(isinstance(comm_group_type, CommGroupType), "comm_group_type must be a poptorch.CommGroupType")
        require(isinstance(shards, int), "shards must be an int: the number of replicas in a group")
        require(
            isinstance(variable_retrieval_mode, VariableRetrievalMode),
            "variable_retrieval_mode must be a poptorch.VariableRetrievalMode",
        )
        self._grouped[self._name] = (comm_group_type, shards, variable_retrieval_mode)

    def __getattr__(self, name: str) -> Any:
        # copying and pickling look these up on the proxy itself
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._parameter, name)


def collect_replica_groups(model: nn.Module, asked: PerReplicaParams, replicas: int) -> Dict[str, ReplicaGroups]:
    """Return the groups of each parameter of `model` that has some, by the first of its names.

    Raises `poptorch.Error` for a parameter without dimensions, for groups that do not divide the replicas, and for a
    leading dimension other than the number of groups.
    """
    found = {}
    for host in host_tensors(model):
        name = next((alias for alias in host.aliases if alias in asked), None)
        if name is None or host.kind != "parameter":
            continue
        if host.tensor.dim() == 0:
            raise createPoptorchError("Scalars cannot be passed as per-replica weight tensor values")
        kind, shards, retrieval = asked[name]
        size = {CommGroupType.All: replicas, CommGroupType.NoGrouping: 1}.get(kind, shards)
        if size < 1 or replicas % size:
            raise native_error(
                f"The {replicas} replicas cannot be put into groups of {size} (replicaGrouping of the parameter {name})"
            )
        returns_all = retrieval == VariableRetrievalMode.AllReplicas
        groups = ReplicaGroups(replicas, size, strided=kind == CommGroupType.Orthogonal, returns_all=returns_all)
        rows = host.tensor.shape[0]
        if rows != groups.num_groups and not (returns_all and rows == replicas):
            raise native_error(
                f"The parameter {name} has {rows} values along its first dimension and {groups.num_groups} groups "
                "of replicas to give them to"
            )
        found[host.name] = groups
    return found


@contextmanager
def put_one_group_in_place(model: nn.Module, names: Collection[str]) -> Iterator[None]:
    """Let the parameters called `names` have only the first group's value while the context lasts."""
    replaced: List[Tuple[MutableMapping[str, Any], str, Any]] = []
    slices: Dict[int, nn.Parameter] = {}
    for host in host_tensors(model):
        if host.name in names:
            whole = make_plain(host.tensor, copy_data=False)
            # by identity: a parameter that is shared has several places, and one slice for all of them
            slices[id(host.tensor)] = nn.Parameter(whole.detach()[0].clone(), requires_grad=whole.requires_grad)
    try:
        for module in model.modules() if slices else ():
            # past `__getattribute__`, which fetches the weights of a wrapped model
            registry = module.__dict__["_parameters"]
            for key, parameter in list(registry.items()):
                if id(parameter) in slices:
                    replaced.append((registry, key, parameter))
                    registry[key] = slices[id(parameter)]
        yield
    finally:
        for registry, key, parameter in replaced:
            registry[key] = parameter
