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
    """The moment of dividing a mean over accumulation and replicas; results are equal in exact arithmetic."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class DataLoaderMode(_IntEnum):
    """The modes of a DataLoader: whether it prepares the next batch while the device runs."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(_IntEnum):
    """The way in which a loading process passes tensors on, which also decides how it is started.

    ``SharedMemory`` and ``FileSystem`` spawn the process, ``Fork`` forks, ``ForkServer`` uses a fork server.
    """

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class OutputMode(_IntEnum):
    """The outputs that a call returns, by micro-batch; ``Default`` is ``All`` in inference, ``Final`` in training."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    # unknown to the compiler: an executor replaces it in its own copy of the options
    Default = 4


class ConnectionType(_IntEnum):
    """The moment of attaching to a device: at once, on the first run, or never (compile only)."""

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
    """The reduction of values of several micro-batches or replicas to one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class SyncPattern(_IntEnum):
    """The pattern in which IPUs wait for each other; it affects speed only."""

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
    """The moment at which tensors of a phased execution leave the chip."""

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
    """The rule that makes stages of blocks when none are listed: by their IPU, or one each in order of appearance."""

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(_IntEnum):
    """The plans of a `MultiConv`: its convolutions run at the same time or one after the other."""

    Parallel = 0
    Serial = 1


class CommGroupType(_IntEnum):
    """The division of n replicas into groups of size k.

    ``All``: one group. ``Consecutive``: {0..k-1}, {k..2k-1}, ... ``Orthogonal`` with m = n/k groups: {0, m, 2m, ...},
    {1, m+1, ...}, ... ``NoGrouping``: each replica alone.
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    # not for inputs, where groups of one say the same
    NoGrouping = 3


class VariableRetrievalMode(_IntEnum):
    """The replicas that a variable is read from: the first of each group, or all. There is no value 1."""

    OnePerGroup = 0
    AllReplicas = 2
