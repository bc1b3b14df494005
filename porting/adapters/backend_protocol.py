"""The protocol of a backend: the part of PopTorch's API that a module must offer to run ported models.

`porting backend check MODULE` looks for the names, and tries what they do.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, List, Mapping

__all__ = ["EXECUTOR_NAMES", "MODULE_NAMES", "OPTIONS_NAMES", "list_missing_names"]

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


def list_missing_names(owner: Any, names: Mapping[str, str]) -> List[str]:
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
