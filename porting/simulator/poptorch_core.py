"""Stand-in for PopTorch's compiled part: the names that Python programs use of it."""

from __future__ import annotations

import enum
from typing import Dict, NoReturn, Tuple

from ._logging import setLogLevel, setPopartLogLevel
from ._options_validation import validate_options as _validateOptions  # noqa: F401
from ._tracing_state import isDispatchTracing
from .errors import Error, RecoverableError, UnrecoverableError, native_error

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "ipuHardwareVersion",
    "isCompilingWithDispatcher",
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


def ipuHardwareVersion(num_ipus: int = 1) -> int:
    """Return the architecture of the IPUs found: 0, there is no hardware."""
    del num_ipus
    return 0


def isCompilingWithDispatcher() -> bool:
    """Tell whether a model is being traced."""
    return isDispatchTracing()


def _throwTestError(error_type: TestErrorType) -> NoReturn:
    """Raise the error that PopTorch raises for a failure of this origin, for tests of a program's error handling."""
    kind, message, recovery_action = _TEST_ERRORS[error_type]
    context = ["throwTestError::bottomLevel", "throwTestError::topLevel"]
    raise native_error(message, kind=kind, context=context, recovery_action=recovery_action)
