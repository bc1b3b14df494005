"""Replace PopTorch on the CPU: `import porting.simulator as poptorch`. It has the same names, and needs no IPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

import torch  # noqa: F401 - programs reach for `poptorch.torch`

from ..support.late_names import read_late_names
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
from ._executables.executable_file import importPoptorchMetadataFromFile
from ._import_effects import apply_import_effects, registerGeometricCustomArgParsers
from ._logging import logger, setLogLevel
from ._model_wrapping import inferenceModel, load, trainingModel
from ._poplar_executor import PoplarExecutor
from ._printing import module_repr, print  # shadows the built-in function, as in PopTorch
from ._utils import flattenTensorStructure, getIpuTensorId, reconstructTensorStructure
from ._version import VERSION as __version__  # noqa: F401
from .enums import *  # noqa: F403 - as PopTorch does: each module lists its own names
from .errors import Error, RecoverableError, UnrecoverableError, createPoptorchError
from .ops import *  # noqa: F403
from .options import *  # noqa: F403
from .tracing_state import (
    _OverwriteContextManager,  # noqa: F401 - libraries register replacements of functions
    isRunningOnIpu,
    registerPostCompileHook,
    registerPreCompileHook,
)

if TYPE_CHECKING:  # loaded on first use: a program that makes its batches itself needs none of it
    from porting.simulator import _dataloader  # noqa: F401 - programs reach for `poptorch._dataloader`
    from porting.simulator._dataloader import AsynchronousDataAccessor as AsynchronousDataAccessor
    from porting.simulator._dataloader import DataLoader as DataLoader
    from porting.simulator._dataloader import _SubDataset  # noqa: F401

__getattr__ = read_late_names(globals())[1]

__all__ = [
    "AsynchronousDataAccessor",
    "DataLoader",
    "Error",
    "ICustomArgParser",
    "PoplarExecutor",
    "RecoverableError",
    "UnrecoverableError",
    "createPoptorchError",
    "custom_ops",
    "enums",
    "errors",
    "flattenTensorStructure",
    "getIpuTensorId",
    "importPoptorchMetadataFromFile",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "load",
    "logger",
    "module_repr",
    "ops",
    "optim",
    "options",
    "poptorch_core",
    "print",
    "profiling",
    "reconstructTensorStructure",
    "registerCustomArgParser",
    "registerGeometricCustomArgParsers",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "setLogLevel",
    "testing",
    "trainingModel",
]
__all__ += enums.__all__
__all__ += ops.__all__
__all__ += options.__all__
__all__.remove("Attribute")  # which ops and options both list


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Tell whether there is hardware, which is so only where the simulated IPUs count as such (``porting run``)."""
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
