"""What reading an attribute of the user's model through its executor gives, and what it warns of."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..diagnostics import caller_place
from ._logging import logger
from .errors import not_simulated

__all__ = ["UNSIMULATED_MEMBERS", "ParameterProxy", "is_move", "warn_of_move"]

# Members of PopTorch's executor that the simulator knows of and does not have yet.
UNSIMULATED_MEMBERS = frozenset(
    "compileAndExport save loadExecutable getTensorNames getAnchoredTensor getPerfCounters getHostIpuLatency "
    "getComputeLatency getIpuHostLatency getLatency _debugGetPopartIR per_replica_params".split()
)

_MOVES = frozenset(["to", "cpu", "cuda", "half", "float", "double", "bfloat16", "type", "xpu", "to_empty"])


class ParameterProxy:
    """What reading a parameter off an executor gives: every attribute of the parameter, and its replica grouping."""

    def __init__(self, parameter: nn.Parameter, name: str) -> None:
        self._parameter = parameter
        self._name = name

    def replicaGrouping(self, *_args: Any, **_kwargs: Any) -> None:
        """Refuse: weights that differ between replicas are not simulated."""
        not_simulated(f"PoplarExecutor.{self._name}.replicaGrouping", "all replicas would share the weights")

    def __getattr__(self, name: str) -> Any:
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
