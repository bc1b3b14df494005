"""Stand in for PopART's Python module: it has the enumerations that programs give to `Options._Popart.set`.

The numbers are PopART's. They are integers, so that the options take them as they are.
"""

from __future__ import annotations

import enum

from ..enums import CommGroupType, ReductionType, SyncPattern
from . import refuse_unknown_names

# The members of each count from 0.
_ENUMERATIONS = {
    "AccumulateOuterFragmentSchedule": "Scheduler Serial OverlapCycleOptimized OverlapMemoryOptimized",
    "AnchorReturnTypeId": "Final EveryN All Sum",
    "AutodiffStitchStrategy": "RecomputeMinimal RecomputeAllNonInputs AddFwdOutputs SafeAddFwdOutputs",
    "BatchSerializationBatchSchedule": "Scheduler Isomorphic OverlapOnIo OverlapOnCompute",
    "BatchSerializationMethod": "UnrollDynamic UnrollStatic Loop",
    "BatchSerializationTransformContext": "Fwd Bwd",
    "DeviceConnectionType": "Always OnDemand Never",
    "DeviceSelectionCriterion": "First Random",
    "DotCheck": "Fwd0 Fwd1 Bwd0 PreAlias Final All",
    "ExecutionPhaseIOSchedule": "Preload OnDemand",
    "ExecutionPhaseSchedule": "Interleaving Batch BatchClusteredIO",
    "GradientTensorTrackingMethod": (
        "AllNonViewChangingGradientTensors ConvAndMatmulGradients GradientsOfUserSpecifiedTensors"
    ),
    "Instrumentation": "Outer Inner",
    "MeanReductionStrategy": "Running Post",
    "MergeVarUpdateType": "Off All AutoLoose AutoTight",
    "PatternsLevel": "NoPatterns Minimal Default All",
    "RecomputationType": "NoRecompute Standard NormOnly Pipeline RecomputeAll",
    "RecomputeType": "Undefined Checkpoint Recompute Recomputed",
    "ReplicatedTensorSharding": "Off On",
    "SubgraphCopyingStrategy": "OnEnterAndExit JustInTime",
    "SyntheticDataMode": "Off Zeros RandomNormal RandomUniform",
    "TensorStorage": "OffChip OnChip",
    "TileSet": "Compute IO Undefined",
    "VariableRetrievalMode": "OnePerGroup AllReduceReplicas AllReplicas",
    "VirtualGraphMode": "Off Manual Auto ExecutionPhases",
}
__all__ = ["CommGroupType", "ReductionType", "SyncPattern", *_ENUMERATIONS]

# `getattr` of programs and `import *` find them like any others
globals().update(
    (name, enum.IntEnum(name, members, start=0, module=__name__, qualname=name))
    for name, members in _ENUMERATIONS.items()
)

__getattr__ = refuse_unknown_names("popart")
