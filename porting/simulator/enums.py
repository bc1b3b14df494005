"""Define the enumerations of the device API, with PopTorch 3.4's members and values."""

from __future__ import annotations

import enum

__all__ = [
    "AutoStage",
    "CommGroupType",
    "ConnectionType",
    "DataLoaderMode",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "OutputMode",
    "OverlapMode",
    "ReductionType",
    "SharingStrategy",
    "SyncPattern",
    "VariableRetrievalMode",
]


class _IntEnum(enum.IntEnum):
    """An `IntEnum` whose ``str`` is ``Class.Member`` on every Python, as it is on the Python that PopTorch runs on."""

    __str__ = enum.Enum.__str__


class MeanReductionStrategy(_IntEnum):
    """When the division of a mean over accumulation and replicas happens; the same result in exact arithmetic."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class DataLoaderMode(_IntEnum):
    """Whether a DataLoader prepares the next batch while the device runs."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(_IntEnum):
    """How a loading process hands tensors over, which also decides how it is started.

    ``SharedMemory`` and ``FileSystem`` spawn the process, ``Fork`` forks, ``ForkServer`` uses a fork server.
    """

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class OutputMode(_IntEnum):
    """Which micro-batches' outputs a call returns; ``Default`` becomes ``All`` in inference, ``Final`` in training."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    # unknown to the compiler: an executor replaces it in its own copy of the options
    Default = 4


class ConnectionType(_IntEnum):
    """When the program attaches to a device: at once, on the first run, or never (compile only)."""

    Always = 0
    OnDemand = 1
    Never = 2


# The dispatcher promotes as torch does; programs of PopTorch 2 still pass these.
class HalfFloatCastingBehavior(_IntEnum):
    """Deprecated, ignored: how mixed half and float operands were promoted."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class ReductionType(_IntEnum):
    """How values of several micro-batches or replicas become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class SyncPattern(_IntEnum):
    """Which IPUs wait for which; it affects speed only."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class MatMulSerializationMode(enum.Enum):
    """The dimension along which a matrix product is split to save memory."""

    # Texts, which PopTorch hands to the compiler as they are; `OverlapMode` too.
    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(_IntEnum):
    """When tensors of a phased execution leave the chip."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class OverlapMode(enum.Enum):
    """The loop within which a host transfer overlaps with computing."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class AutoStage(_IntEnum):
    """How blocks become stages when no stages are listed: by their IPU, or one each in order of appearance."""

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(_IntEnum):
    """Whether the convolutions of a `MultiConv` run at the same time or one after the other."""

    Parallel = 0
    Serial = 1


class CommGroupType(_IntEnum):
    """How n replicas are put into groups of size k.

    ``All``: one group. ``Consecutive``: {0..k-1}, {k..2k-1}, ... ``Orthogonal`` with m = n/k groups: {0, m, 2m, ...},
    {1, m+1, ...}, ... ``NoGrouping``: each replica alone.
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    # not for inputs, where groups of one say the same
    NoGrouping = 3


class VariableRetrievalMode(_IntEnum):
    """Which replicas a variable is read from: the first of each group, or all. There is no value 1."""

    OnePerGroup = 0
    AllReplicas = 2
