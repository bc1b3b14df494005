"""List the part of PopTorch's API that a backend must offer to run ported models.

Ports use this part alone, and `porting backend check MODULE` looks for the names and tries what they do.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Protocol, Sequence

if TYPE_CHECKING:
    from porting.capture import StepGraph
    from porting.capture.following import FirstRun
    from porting.engines.calls.call_plan import CallPlan
    from porting.engines.calls.device_state import DeviceState
    from porting.executables import Obtained

__all__ = [
    "EXECUTOR_NAMES",
    "MODULE_NAMES",
    "OPTIONS_NAMES",
    "BackendOptimizer",
    "CompiledStep",
    "Executor",
    "HasState",
    "list_missing_names",
]

MODULE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "trainingModel": "`(model, options, optimizer)`: an executor whose call is a training step",
        "inferenceModel": "`(model, options)`: an executor that runs `forward` in the modes that the model has",
        "Options": "how an executor runs; see the names of its instances",
        "DataLoader": "`(options, dataset, batch_size, ...)`: a loader of combined batches",
        "optim.SGD": "the device's optimizers take parameter groups and keep their state as `ipu_state`",
        "optim.Adam": "as `torch.optim.Adam`",
        "optim.AdamW": "as `torch.optim.AdamW`",
        "optim.RMSprop": "as `torch.optim.RMSprop`",
        "identity_loss": "`(tensor, reduction)`: marks the loss in `forward`",
        "isRunningOnIpu": "`()`: whether `forward` runs for the device",
        "ReductionType": "enumeration with `Mean` and `Sum`",
        "OutputMode": "enumeration with `Final`, `All`, `Sum` and `EveryN`",
    }
)
"""What the module must have, and what it is."""

OPTIONS_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "deviceIterations": "optimizer steps of a call",
        "replicationFactor": "replicas",
        "outputMode": "which results of a call come back",
        "randomSeed": "the seed of the device's random stream",
        "broadcastBuffers": "whether replicas share buffers",
        "enableExecutableCaching": "the folder of executables",
        "Training.gradientAccumulation": "micro-batches of an optimizer step",
        "Training.accumulationAndReplicationReductionType": "how their gradients are joined",
        "clone": "a copy",
    }
)
"""What an instance of `Options` must have; each setter returns the instance."""

EXECUTOR_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "compile": "`(*batch)`: make the executable without running it",
        "isAttachedToDevice": "whether it holds a device",
        "attachToDevice": "take a device; weights, optimizer state and random state go there",
        "detachFromDevice": "bring all of that to the host, and release the device",
        "copyWeightsToHost": "bring the weights to the host's tensors",
        "copyWeightsToDevice": "send the host's weights",
        "setOptimizer": "hand over changed hyper-parameters, and a state that was loaded",
        "getTensorNames": "names of tensors in the executable; may be empty",
        "rng_state": "the random stream's state as a list of integers; None before it has begun",
        "destroy": "drop the executable after bringing everything to the host",
    }
)
"""What an executor must have; called with a batch, it compiles first where that has not happened."""


class HasState(Protocol):
    """A model, an optimizer or a scheduler: what has a state that a checkpoint keeps."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state."""


class BackendOptimizer(Protocol):
    """What ports ask of a backend's optimizer; its state has `ipu_state` and `ipu_param`."""

    param_groups: List[Dict[str, Any]]

    def state_dict(self) -> Dict[str, Any]:
        """Return the state by the device's names."""

    def set_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state that the executor hands over to the device."""


class CompiledStep(Protocol):
    """What the simulator's executor has compiled; the vendor's tells nothing of it."""

    graph: StepGraph
    obtained: Obtained
    state: DeviceState
    plan: CallPlan
    capture_again: Any
    capture_seconds: float
    first_run: Optional[FirstRun]


class Executor(Protocol):
    """What ports ask of a backend's executor, as `EXECUTOR_NAMES` says; the simulator's has a `device_session`."""

    device_session: Any
    rng_state: Optional[Sequence[int]]
    options: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call."""

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Make the executable."""

    def isAttachedToDevice(self) -> bool:  # noqa: N802 - the vendor's spelling, as below
        """Tell whether it holds a device."""

    def attachToDevice(self) -> None:  # noqa: N802
        """Take a device."""

    def detachFromDevice(self) -> None:  # noqa: N802
        """Release the device."""

    def copyWeightsToHost(self) -> None:  # noqa: N802
        """Bring the weights to the host."""

    def copyWeightsToDevice(self) -> None:  # noqa: N802
        """Send the weights."""

    def copyWeightsToHostIfNeeded(self) -> bool:  # noqa: N802
        """Bring the weights to the host where those are older."""

    def setOptimizer(self, optimizer: BackendOptimizer) -> None:  # noqa: N802
        """Hand over hyper-parameters and a loaded state."""

    def getTensorNames(self) -> Sequence[str]:  # noqa: N802
        """List the tensors in the executable."""

    def getAnchoredTensor(self, short_name: str) -> Any:  # noqa: N802
        """Return what a tensor held in the last call."""

    def destroy(self) -> None:
        """Drop the executable."""


def list_missing_names(owner: object, names: Mapping[str, str]) -> List[str]:
    """List those of `names`, with dots inside, that `owner` does not have.

    >>> import math
    >>> list_missing_names(math, {"sqrt": "", "optim.SGD": ""})
    ['optim.SGD']
    """
    missing = []
    for name in names:
        found = owner
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    return missing
