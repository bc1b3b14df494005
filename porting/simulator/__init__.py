"""A drop-in replacement for PopTorch on the CPU: `import porting.simulator as poptorch`."""

from __future__ import annotations

from typing import Any, List

from ..capture import StructureAdapter as ICustomArgParser
from . import (
    _impl,  # noqa: F401 - programs reach for `poptorch._impl`
    enums,
    errors,
    ops,
    optim,
    options,
    poptorch_core,
)
from ._dataloader import DataLoader
from ._logging import logger, setLogLevel
from ._model_wrapping import inferenceModel, trainingModel
from ._poplar_executor import PoplarExecutor
from ._printing import module_repr
from ._printing import print_module as print  # noqa: F401 - shadows the built-in function here, as in PopTorch
from ._structure_parsers import registerCustomArgParser
from ._tracing_state import isRunningOnIpu, registerPostCompileHook, registerPreCompileHook
from ._utils import flattenTensorStructure, reconstructTensorStructure
from ._version import VERSION as __version__  # noqa: F401
from .enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from .errors import Error, RecoverableError, UnrecoverableError, createPoptorchError, not_simulated
from .ops import identity_loss
from .options import (
    ConfigFileError,
    Options,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)

# Names of PopTorch 3.4 that are known and not simulated yet: using one raises an error that says so.
NOT_SIMULATED = frozenset(
    "AsynchronousDataAccessor Attribute BeginBlock Block BlockFunction CPU LegacyBeginBlockFn MultiConv NameScope "
    "_OverwriteContextManager _SubDataset accessAttributes attributes_lists cond ctc_beam_search_decoder custom_op "
    "dynamic_slice dynamic_update for_loop fps getIpuTensorId importPoptorchMetadataFromFile ipu_print_tensor load "
    "nearest nop profiling recomputationCheckpoint registerGeometricCustomArgParsers removeBlocks "
    "serializedMatMul set_available_memory set_overlap_for_input set_overlap_for_output testing".split()
)

__all__ = [
    "AutoStage",
    "CommGroupType",
    "ConfigFileError",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "createPoptorchError",
    "enums",
    "errors",
    "flattenTensorStructure",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "logger",
    "module_repr",
    "ops",
    "optim",
    "options",
    "poptorch_core",
    "reconstructTensorStructure",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "setLogLevel",
    "trainingModel",
]


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Tell whether there is hardware: never, this is the simulator."""
    return poptorch_core.ipuHardwareVersion(num_ipus) != 0


def ipuHardwareVersion() -> int:
    """Return the architecture of the hardware; AssertionError, since there is none."""
    version = poptorch_core.ipuHardwareVersion()
    if version == 0:
        raise AssertionError("No IPU hardware available on this system")
    return version


def __getattr__(name: str) -> Any:
    if name in NOT_SIMULATED:
        not_simulated(f"poptorch.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted(__all__)
