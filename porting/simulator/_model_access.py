"""Read attributes of the user's model through its executor, with a warning where they may mislead."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..diagnostics import caller_place
from ._logging import logger
from ._options_impl import require
from ._weights.replica_parameters import PerReplicaParams
from .enums import CommGroupType, VariableRetrievalMode

__all__ = ["ParameterProxy", "is_move", "warn_of_move"]

# methods of `nn.Module` that return the module: what is chained to them runs on the host
_MOVES = frozenset(["to", "cpu", "cuda", "half", "float", "double", "bfloat16", "type", "xpu", "to_empty"])


class ParameterProxy:
    """What reading a parameter off an executor gives: every attribute of the parameter, and its replica grouping."""

    def __init__(self, parameter: nn.Parameter, name: str, grouped: PerReplicaParams) -> None:
        """Stand for the `parameter` called `name`; `grouped` is where its executor keeps replica groupings."""
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


def is_move(name: str) -> bool:
    """Tell whether `name` is a method of modules that moves or converts them."""
    return name in _MOVES


def warn_of_move(name: str) -> None:
    """Say that an executor hands out the bare module's method: the program would go on on the host without a word."""
    logger.warning(
        "`.%s` of an executor is the method of the bare module (%s): what it returns runs on the host, not on the "
        "device",
        name,
        caller_place(),
    )
