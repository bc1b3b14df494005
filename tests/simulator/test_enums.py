"""The enumerations have PopTorch's members, values and text."""

from __future__ import annotations

import enum
import pickle

import pytest

from porting.simulator import enums

MEMBERS = {
    "AutoStage": {"SameAsIpu": 0, "AutoIncrement": 1},
    "CommGroupType": {"All": 0, "Consecutive": 1, "Orthogonal": 2, "NoGrouping": 3},
    "ConnectionType": {"Always": 0, "OnDemand": 1, "Never": 2},
    "DataLoaderMode": {"Sync": 0, "Async": 1, "AsyncRebatched": 2},
    "HalfFloatCastingBehavior": {"FloatDowncastToHalf": 0, "HalfUpcastToFloat": 1, "Default": 2},
    "Liveness": {"AlwaysLive": 0, "OffChipAfterFwd": 1, "OffChipAfterFwdNoOverlap": 2, "OffChipAfterEachPhase": 3},
    "MatMulSerializationMode": {
        "InputChannels": "input_channels",
        "ReducingDim": "reducing_dim",
        "OutputChannels": "output_channels",
        "Disabled": "none",
    },
    "MeanReductionStrategy": {"Running": 0, "Post": 1, "PostAndLoss": 2},
    "MultiConvPlanType": {"Parallel": 0, "Serial": 1},
    "OutputMode": {"Final": 0, "EveryN": 1, "All": 2, "Sum": 3, "Default": 4},
    "OverlapMode": {
        "NoOverlap": "no_overlap",
        "OverlapAccumulationLoop": "overlap_accumulation_loop",
        "OverlapDeviceIterationLoop": "overlap_device_iteration_loop",
    },
    "ReductionType": {"Sum": 0, "Mean": 1, "NoReduction": 2},
    "SharingStrategy": {"SharedMemory": 0, "FileSystem": 1, "Fork": 2, "ForkServer": 3},
    "SyncPattern": {"Full": 0, "SinglePipeline": 1, "ReplicaAndLadder": 2},
    "VariableRetrievalMode": {"OnePerGroup": 0, "AllReplicas": 2},
}
PLAIN_ENUMS = {"MatMulSerializationMode", "OverlapMode"}


def test_module_exports_exactly_the_enumerations():
    assert sorted(MEMBERS) == enums.__all__


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_members_have_the_values_of_poptorch(name):
    members = getattr(enums, name).__members__

    assert {member: value.value for member, value in members.items()} == MEMBERS[name]


@pytest.mark.parametrize("name", sorted(set(MEMBERS) - PLAIN_ENUMS))
def test_numbered_enumerations_compare_with_their_number(name):
    enumeration = getattr(enums, name)

    assert issubclass(enumeration, enum.IntEnum)
    assert list(enumeration) == list(MEMBERS[name].values())


@pytest.mark.parametrize("name", sorted(PLAIN_ENUMS))
def test_named_enumerations_are_not_numbers(name):
    assert not issubclass(getattr(enums, name), int)


def test_text_of_a_member_is_its_full_name_on_every_python():
    assert str(enums.OutputMode.EveryN) == "OutputMode.EveryN"


def test_members_survive_pickling_as_the_same_object():
    assert pickle.loads(pickle.dumps(enums.ReductionType.Mean)) is enums.ReductionType.Mean
