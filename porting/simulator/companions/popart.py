"""Stand-in for PopART's Python module: the enumerations that programs give to `Options._Popart.set`.

The numbers are PopART's. They are integers, so that the options take them as they are.
"""

from __future__ import annotations

import enum
from typing import Any

from ..enums import CommGroupType, ReductionType, SyncPattern
from . import refuse_unknown_names

__all__ = [
    "AccumulateOuterFragmentSchedule",
    "AnchorReturnTypeId",
    "AutodiffStitchStrategy",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationTransformContext",
    "CommGroupType",
    "DeviceConnectionType",
    "DeviceSelectionCriterion",
    "DotCheck",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "GradientTensorTrackingMethod",
    "Instrumentation",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "PatternsLevel",
    "RecomputationType",
    "RecomputeType",
    "ReductionType",
    "ReplicatedTensorSharding",
    "SubgraphCopyingStrategy",
    "SyncPattern",
    "SyntheticDataMode",
    "TensorStorage",
    "TileSet",
    "VariableRetrievalMode",
    "VirtualGraphMode",
]


def _numbered(name: str, members: str) -> Any:
    """Make an enumeration whose members count from 0."""
    return enum.IntEnum(name, members, start=0, module=__name__, qualname=name)


AccumulateOuterFragmentSchedule = _numbered(
    "AccumulateOuterFragmentSchedule", "Scheduler Serial OverlapCycleOptimized OverlapMemoryOptimized"
)
AnchorReturnTypeId = _numbered("AnchorReturnTypeId", "Final EveryN All Sum")
AutodiffStitchStrategy = _numbered(
    "AutodiffStitchStrategy", "RecomputeMinimal RecomputeAllNonInputs AddFwdOutputs SafeAddFwdOutputs"
)
BatchSerializationBatchSchedule = _numbered(
    "BatchSerializationBatchSchedule", "Scheduler Isomorphic OverlapOnIo OverlapOnCompute"
)
BatchSerializationMethod = _numbered("BatchSerializationMethod", "UnrollDynamic UnrollStatic Loop")
BatchSerializationTransformContext = _numbered("BatchSerializationTransformContext", "Fwd Bwd")
DeviceConnectionType = _numbered("DeviceConnectionType", "Always OnDemand Never")
DeviceSelectionCriterion = _numbered("DeviceSelectionCriterion", "First Random")
DotCheck = _numbered("DotCheck", "Fwd0 Fwd1 Bwd0 PreAlias Final All")
ExecutionPhaseIOSchedule = _numbered("ExecutionPhaseIOSchedule", "Preload OnDemand")
ExecutionPhaseSchedule = _numbered("ExecutionPhaseSchedule", "Interleaving Batch BatchClusteredIO")
GradientTensorTrackingMethod = _numbered(
    "GradientTensorTrackingMethod",
    "AllNonViewChangingGradientTensors ConvAndMatmulGradients GradientsOfUserSpecifiedTensors",
)
Instrumentation = _numbered("Instrumentation", "Outer Inner")
MeanReductionStrategy = _numbered("MeanReductionStrategy", "Running Post")
MergeVarUpdateType = _numbered("MergeVarUpdateType", "Off All AutoLoose AutoTight")
PatternsLevel = _numbered("PatternsLevel", "NoPatterns Minimal Default All")
RecomputationType = _numbered("RecomputationType", "NoRecompute Standard NormOnly Pipeline RecomputeAll")
RecomputeType = _numbered("RecomputeType", "Undefined Checkpoint Recompute Recomputed")
ReplicatedTensorSharding = _numbered("ReplicatedTensorSharding", "Off On")
SubgraphCopyingStrategy = _numbered("SubgraphCopyingStrategy", "OnEnterAndExit JustInTime")
SyntheticDataMode = _numbered("SyntheticDataMode", "Off Zeros RandomNormal RandomUniform")
TensorStorage = _numbered("TensorStorage", "OffChip OnChip")
TileSet = _numbered("TileSet", "Compute IO Undefined")
VariableRetrievalMode = _numbered("VariableRetrievalMode", "OnePerGroup AllReduceReplicas AllReplicas")
VirtualGraphMode = _numbered("VirtualGraphMode", "Off Manual Auto ExecutionPhases")

__getattr__ = refuse_unknown_names("popart")
