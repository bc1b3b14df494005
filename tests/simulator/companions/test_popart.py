"""The enumerations of PopART are numbers that the options take."""

from __future__ import annotations

import enum

import pytest

import porting.simulator as simulator
from porting.simulator import poptorch_core
from porting.simulator._options.validation import _HIGHEST_VALUES

OPTIONS = {
    "accumulateOuterFragmentSettings.schedule": "AccumulateOuterFragmentSchedule",
    "accumulationAndReplicationReductionType": "ReductionType",
    "autoRecomputation": "RecomputationType",
    "autodiffSettings.stitchStrategy": "AutodiffStitchStrategy",
    "automaticLossScalingSettings.gradientTensorTrackingMethod": "GradientTensorTrackingMethod",
    "batchSerializationSettings.batchSchedule": "BatchSerializationBatchSchedule",
    "batchSerializationSettings.method": "BatchSerializationMethod",
    "batchSerializationSettings.transformContext": "BatchSerializationTransformContext",
    "mergeVarUpdate": "MergeVarUpdateType",
    "subgraphCopyingStrategy": "SubgraphCopyingStrategy",
    "syntheticDataMode": "SyntheticDataMode",
    "virtualGraphMode": "VirtualGraphMode",
}


@pytest.mark.parametrize(("option", "name"), OPTIONS.items())
def test_options_take_the_members_as_they_are(option, name):
    import popart

    highest = _HIGHEST_VALUES[option]
    members = [member for member in getattr(popart, name) if member <= highest]
    options = simulator.Options().outputMode(simulator.OutputMode.All)

    for member in members:
        options._Popart.set(option, member)
        poptorch_core._validateOptions(options.toDict())

    assert len(members) > 1


@pytest.mark.parametrize(
    ("member", "number"),
    [
        ("AccumulateOuterFragmentSchedule.OverlapMemoryOptimized", 3),
        ("AnchorReturnTypeId.All", 2),
        ("CommGroupType.Orthogonal", 2),
        ("DeviceConnectionType.Never", 2),
        ("MergeVarUpdateType.AutoTight", 3),
        ("PatternsLevel.Default", 2),
        ("RecomputationType.NoRecompute", 0),
        ("RecomputationType.Pipeline", 3),
        ("RecomputationType.RecomputeAll", 4),
        ("ReductionType.Mean", 1),
        ("SubgraphCopyingStrategy.JustInTime", 1),
        ("SyncPattern.ReplicaAndLadder", 2),
        ("SyntheticDataMode.RandomNormal", 2),
        ("VariableRetrievalMode.AllReplicas", 2),
        ("VirtualGraphMode.ExecutionPhases", 3),
    ],
)
def test_the_numbers_are_poparts(member, number):
    import popart

    name, _, value = member.partition(".")
    found = getattr(getattr(popart, name), value)

    assert found == number
    assert isinstance(found, enum.IntEnum)
    assert f"{type(found).__name__}.{found.name}" == member
