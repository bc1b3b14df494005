"""Define the exception classes of PopTorch, and the one for a name that is not simulated."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn, Sequence, Tuple, Type

from porting.diagnostics import Finding, PortingError, caller_place, render

__all__ = [
    "Error",
    "NotSimulatedError",
    "OutOfMemoryError",
    "RecoverableError",
    "UnrecoverableError",
    "compile_error",
    "createPoptorchError",
    "memory_error",
    "native_error",
    "not_simulated",
]

_PYTHON_ERROR = "poptorch_py_error"
_NATIVE_ERROR = "poptorch_cpp_error"

# as in PopTorch: the stack of a compiler may have thousands of lines
_MAX_LINES_ON_SCREEN = 80
_FULL_TEXT_FILE = "poptorch_error.log"


class Error(Exception):
    """The error of the device API: ``str`` is the whole text, the attributes are its parts.

    ``type`` names the origin (``poptorch_py_error``, ``poptorch_cpp_error``, ...), ``message`` is the text without
    origin and context, ``location`` the context stack, one line each, innermost first.

    >>> Error("out of memory").message
    'out of memory'
    """

    # on the class, because programs make errors of their own, without an origin
    type: str = _NATIVE_ERROR
    message: str = ""
    location: str = ""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.message = str(args[0]) if args else ""


class RecoverableError(Error):
    """A run-time failure after which the system can be used again once ``recovery_action`` was taken."""

    recovery_action: str = ""


class UnrecoverableError(Error):
    """A run-time failure that needs a repair of the machine."""


class NotSimulatedError(Error, AttributeError):
    """The error for a name or setting of the device API that the simulator does not have yet.

    It is an `AttributeError` too, so that ``hasattr(poptorch, name)`` answers truthfully. ``finding`` is the same
    fact as data (code S001, with the place in the user's program).
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(render(finding))
        self.finding = finding
        self.type = _PYTHON_ERROR
        self.message = finding.message or ""

    # by its finding: the text alone could not be unpickled to an error with a code
    def __reduce__(self) -> Tuple[Type[NotSimulatedError], Tuple[Finding]]:
        return type(self), (self.finding,)


class OutOfMemoryError(Error, PortingError):
    """The error for a step that a plan has found too large: ``finding`` says what helps, the rest is the vendor's."""

    def __init__(self, finding: Finding, vendors: Error) -> None:
        super().__init__(finding)
        self.type, self.message, self.location = vendors.type, vendors.message, vendors.location
        self._vendors = vendors

    def __reduce__(self) -> Tuple[Type[OutOfMemoryError], Tuple[Finding, Error]]:
        return type(self), (self.finding, self._vendors)


def createPoptorchError(msg: str) -> Error:
    """Build (not raise) the error that PopTorch's Python code raises.

    >>> str(createPoptorchError("Device is not attached"))
    "'poptorch_py_error': Device is not attached"
    """
    error = Error(f"'{_PYTHON_ERROR}': {msg}")
    error.type = _PYTHON_ERROR
    error.message = msg
    return error


def native_error(
    msg: str, *, kind: str = _NATIVE_ERROR, context: Sequence[str] = (), recovery_action: str = ""
) -> Error:
    """Build (not raise) an error in the form of PopTorch's compiled part.

    ``kind`` becomes ``.type``; ``context`` is the stack of what was being done, innermost first. The class follows
    from the kind: `RecoverableError` with a ``recovery_action``, `UnrecoverableError` for
    ``poplar_unrecoverable_runtime_error``, `Error` otherwise. Of a text longer than 80 lines only the head is
    kept; the whole goes to ``poptorch_error.log`` in the working directory.

    >>> error = native_error("Unknown ops", context=["compiling", "LowerToPopart"])
    >>> print(error.location)
      [0] compiling
      [1] LowerToPopart
    """
    # PopTorch names the file and line of its compiled part; here it is the line of the simulator that refuses.
    caller = sys._getframe(1)
    location = "\n".join(f"  [{depth}] {what}" for depth, what in enumerate(context))
    text = f"In {Path(caller.f_code.co_filename).name}:{caller.f_lineno}: '{kind}': {msg}"
    if recovery_action:
        text += f"\nRecovery action required: {recovery_action}"
    if location:
        text += f"\nError raised in:\n{location}"

    lines = text.splitlines()
    if len(lines) > _MAX_LINES_ON_SCREEN:
        # an error in a folder that is read-only must not hide the error that is reported
        try:
            Path(_FULL_TEXT_FILE).write_text(text + "\n", encoding="utf-8")
            where = f"see {_FULL_TEXT_FILE} for the full text"
        except OSError as error:
            where = f"the full text could not be written to {_FULL_TEXT_FILE}: {error}"
        num_left = len(lines) - _MAX_LINES_ON_SCREEN
        text = "\n".join([*lines[:_MAX_LINES_ON_SCREEN], f"[{num_left} lines left out: {where}]"])

    cls: Type[Error] = UnrecoverableError if kind == "poplar_unrecoverable_runtime_error" else Error
    made = (RecoverableError if recovery_action else cls)(text)
    made.type, made.message, made.location = kind, msg, location
    if isinstance(made, RecoverableError):
        made.recovery_action = recovery_action
    return made


def memory_error(used_bytes: int, *, tile_bytes: int, num_tiles: int, ipu: int = 0) -> Error:
    """Build (not raise) the error of a program that uses so many bytes on each tile of ``ipu``, and only has these."""
    return native_error(
        "Out of memory: Cannot fit all variable data onto one or more tiles. "
        f"Out of memory on tile {ipu * num_tiles}: {used_bytes} bytes used but tiles only have {tile_bytes} bytes of "
        "memory\n"
        f"  Memory needed on IPU {ipu} (with gaps): {used_bytes * num_tiles / 2**20:.0f} MiB of "
        f"{tile_bytes * num_tiles / 2**20:.0f} MiB over {num_tiles} tiles\n"
        "  For a memory profile of the program, set POPLAR_ENGINE_OPTIONS="
        '\'{"autoReport.all":"true", "autoReport.directory":"./report", "debug.allowOutOfMemory":"true"}\' or use '
        'poptorch.Options().enableProfiling("./report"), and open the report in the PopVision Graph Analyser.',
        kind="popart_exception",
        context=["popart::Session::prepareDevice: Poplar compilation", "LowerToPopart::compile", "compileAndLoad"],
    )


def compile_error(msg: str) -> Error:
    """Build (not raise) an error of PopTorch's compiler about the line of `forward` that is being traced."""
    # PopTorch's context is a stack of its own functions: the line of the user says more
    place = caller_place()
    return native_error(msg, context=(f"forward, at {place}",) if place is not None else ())


def not_simulated(name: str, why: str = "") -> NoReturn:
    """Raise `NotSimulatedError` for ``name``, spelled as the user wrote it, such as ``poptorch.MultiConv``.

    ``why`` states the fault that would follow if the simulator continued without it.
    """
    raise NotSimulatedError(
        Finding(
            code="S001",
            message=f"the simulator does not have `{name}`",
            place=caller_place(),
            label="not simulated",
            notes=(why,) if why else (),
            help=("leave it out for simulated runs, or run on a machine with IPUs and the vendor's poptorch",),
        )
    )
