"""Stand in for `popdist.poptorch`: PopTorch's options, filled with what the launcher sets for this instance."""

from __future__ import annotations

from typing import Any, NoReturn, Optional

from ....support.process import this_instance
from ... import options as poptorch_options
from ..._options.groups import _DistributedOptions as _PopTorchDistributedOptions
from .. import popdist, refuse_unknown_names

__all__ = ["Options"]


def _refuse_calls(method: str) -> Any:
    """Make a method that raises `RuntimeError`: what it would set is decided by the launcher."""

    def refuse(_self: object, *_args: object, **_kwargs: object) -> NoReturn:
        raise RuntimeError(f"Cannot call `{method}` with popdist.poptorch.Options")

    return refuse


class _DistributedOptions(_PopTorchDistributedOptions):
    """The options for several processes, which the launcher decides."""

    def __init__(self) -> None:
        super().__init__()
        instance = this_instance()
        self.set(num_distributed_processes=instance.size, distributed_process_id=instance.index)

    disable = _refuse_calls("disable")
    setEnvVarNames = _refuse_calls("setEnvVarNames")
    configureProcessId = _refuse_calls("configureProcessId")


class Options(poptorch_options.Options):
    """`poptorch.Options` of one instance: its replicas, its device and its place among the processes.

    Setting an option that the launcher decides raises `RuntimeError`.
    """

    def __init__(self, ipus_per_replica: Optional[int] = None) -> None:
        """Read the launcher's settings; RuntimeError if it gave replicas another number of IPUs."""
        super().__init__()
        self._distributed = _DistributedOptions()
        # the inherited setters, because those of this class refuse
        super().replicationFactor(popdist.getNumLocalReplicas())
        super().useIpuId(popdist.getDeviceId(ipus_per_replica))
        self._Popart.set("enableDistributedReplicatedGraphs", popdist.getNumInstances() > 1)
        self._Popart.set("globalReplicationFactor", popdist.getNumTotalReplicas())
        self._Popart.set("globalReplicaOffset", popdist.getReplicaIndexOffset())

    replicationFactor = _refuse_calls("replicationFactor")
    useIpuId = _refuse_calls("useIpuId")


__getattr__ = refuse_unknown_names("popdist.poptorch")
