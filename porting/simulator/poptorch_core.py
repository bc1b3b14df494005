"""Stand in for PopTorch's compiled part: it has the names that Python programs use."""

from __future__ import annotations

import enum
from typing import Dict, NoReturn, Tuple

from ..torch_insides.tensors import propagate_shapes
from . import _logging
from ._device.device_target import find_hardware_version as ipuHardwareVersion
from ._executables.executable_file import appendPoptorchMetadataToFile, importPoptorchMetadataFromFile
from ._logging import poptorchAtExit, setLogLevel
from ._options.validation import validate_options as _validateOptions  # noqa: F401
from .errors import Error, RecoverableError, UnrecoverableError, native_error
from .tracing_state import isDispatchTracing as isCompilingWithDispatcher

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "appendPoptorchMetadataToFile",
    "importPoptorchMetadataFromFile",
    "ipuHardwareVersion",
    "isCompilingWithDispatcher",
    "poptorchAtExit",
    "propagateInputShapes",
    "setLogLevel",
    "setPopartLogLevel",
]


class TestErrorType(enum.Enum):
    """The origins of errors that `_throwTestError` can imitate."""

    __test__ = False

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7

    def __int__(self) -> int:
        """Return the number, as enumerations of compiled modules do."""
        return self.value


# The kind of each error, its message and what is to be done about it.
_TEST_ERRORS: Dict[TestErrorType, Tuple[str, str, str]] = {
    TestErrorType.Poptorch: ("poptorch_cpp_error", "poptorch error", ""),
    TestErrorType.Popart: ("popart_exception", "popart error", ""),
    TestErrorType.PopartInternal: ("popart_internal_exception", "popart internal error", ""),
    TestErrorType.Poplibs: ("poplibs_exception", "poplibs error", ""),
    TestErrorType.PoplarUnrecoverable: ("poplar_unrecoverable_runtime_error", "unrecoverable error", ""),
    TestErrorType.PoplarUnknown: ("poplar_unknown_runtime_error", "unknown error", ""),
    TestErrorType.PoplarRecoverableFullReset: ("poplar_recoverable_runtime_error", "recoverable error", "FULL_RESET"),
    TestErrorType.PoplarLinkError: ("poplar_link_error", "link error. Output: -lfoo not found", ""),
}


def setPopartLogLevel(level: int) -> None:
    """Accept a level by its number for the graph compiler's log, which is not simulated; `ValueError` for others."""
    if level not in _logging.LOG_LEVELS.values():
        raise ValueError("Invalid log level integer")


def propagateInputShapes(graph: object) -> None:
    """Give the values inside a TorchScript graph the shapes that follow from its inputs' shapes, in place."""
    propagate_shapes(graph)


def _throwTestError(error_type: TestErrorType) -> NoReturn:
    """Raise the error that PopTorch raises for a failure of this origin, for tests of a program's error handling."""
    kind, message, recovery_action = _TEST_ERRORS[error_type]
    context = ["throwTestError::bottomLevel", "throwTestError::topLevel"]
    raise native_error(message, kind=kind, context=context, recovery_action=recovery_action)
