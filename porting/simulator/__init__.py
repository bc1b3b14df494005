"""A drop-in replacement for PopTorch on the CPU: `import porting.simulator as poptorch`."""

from __future__ import annotations

from typing import List

import torch  # noqa: F401 - programs reach for `poptorch.torch`

from . import (
    _impl,  # noqa: F401 - programs reach for `poptorch._impl`
    custom_ops,
    enums,
    errors,
    ops,
    optim,
    options,
    poptorch_core,
    profiling,
    testing,
)
from ._args_parser import ICustomArgParser, registerCustomArgParser
from ._dataloader import AsynchronousDataAccessor, DataLoader, _SubDataset  # noqa: F401
from ._executables.executable_file import importPoptorchMetadataFromFile
from ._import_effects import apply_import_effects, registerGeometricCustomArgParsers
from ._logging import logger, setLogLevel
from ._model_wrapping import inferenceModel, load, trainingModel
from ._poplar_executor import PoplarExecutor
from ._printing import module_repr, print  # shadows the built-in function, as in PopTorch
from ._scopes.blocks import BeginBlock, Block, BlockFunction, BlockId, LegacyBeginBlockFn, removeBlocks
from ._scopes.multi_conv import MultiConv
from ._scopes.name_scopes import Attribute, NameScope
from ._utils import flattenTensorStructure, getIpuTensorId, reconstructTensorStructure
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
from .errors import Error, RecoverableError, UnrecoverableError, createPoptorchError
from .ops import (
    ATTR_PREFIX,
    CPU,
    accessAttributes,
    attributes_lists,
    cond,
    ctc_beam_search_decoder,
    custom_op,
    dynamic_slice,
    dynamic_update,
    for_loop,
    fps,
    identity_loss,
    ipu_print_tensor,
    nearest,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
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
from .tracing_state import (
    _OverwriteContextManager,  # noqa: F401 - libraries register replacements of functions
    isRunningOnIpu,
    registerPostCompileHook,
    registerPreCompileHook,
)

__all__ = [
    "ATTR_PREFIX",
    "CPU",
    "AsynchronousDataAccessor",
    "Attribute",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "BlockId",
    "CommGroupType",
    "ConfigFileError",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "LegacyBeginBlockFn",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConv",
    "MultiConvPlanType",
    "NameScope",
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
    "accessAttributes",
    "attributes_lists",
    "cond",
    "createPoptorchError",
    "ctc_beam_search_decoder",
    "custom_op",
    "custom_ops",
    "dynamic_slice",
    "dynamic_update",
    "enums",
    "errors",
    "flattenTensorStructure",
    "for_loop",
    "fps",
    "getIpuTensorId",
    "identity_loss",
    "importPoptorchMetadataFromFile",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "load",
    "logger",
    "module_repr",
    "nearest",
    "nop",
    "ops",
    "optim",
    "options",
    "poptorch_core",
    "print",
    "profiling",
    "recomputationCheckpoint",
    "reconstructTensorStructure",
    "registerCustomArgParser",
    "registerGeometricCustomArgParsers",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "serializedMatMul",
    "setLogLevel",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "testing",
    "trainingModel",
]


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Tell whether there is hardware: only where the simulated IPUs count as such (``porting run``)."""
    return poptorch_core.ipuHardwareVersion(num_ipus) != 0


def ipuHardwareVersion() -> int:
    """Return the architecture of the hardware, 2 for GC200 and 21 for Bow; AssertionError if there is none."""
    version = poptorch_core.ipuHardwareVersion()
    if version == 0:
        raise AssertionError("No IPU hardware available on this system")
    return version


def __dir__() -> List[str]:
    return sorted(__all__)


apply_import_effects()
