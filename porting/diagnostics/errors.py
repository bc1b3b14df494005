"""Define the errors, which carry a finding: one class for each kind of fault that a program may catch."""

from __future__ import annotations

import importlib
import os
import traceback
from typing import Any, List, Optional, Sequence, Type, TypeVar, Union

from porting.diagnostics.codes import Severity
from porting.diagnostics.findings import Finding, render
from porting.diagnostics.places import Place, caller_place

__all__ = [
    "BatchError",
    "CaptureError",
    "CheckpointError",
    "DeviceError",
    "ExecutableError",
    "OptionError",
    "PortingError",
    "UnsupportedOptimizerError",
    "are_tracebacks_wanted",
    "require_extra",
]

_Error = TypeVar("_Error", bound="PortingError")


class PortingError(Exception):
    """A finding that stops the work; as a string it is the rendered finding with the user's source line.

    >>> error = PortingError.of("L002", label="of shape [4]", help="reduce it, as in `loss.mean()`")
    >>> error.code, error.finding.label
    ('L002', 'of shape [4]')
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return render(self.finding)

    def _render_traceback_(self) -> List[str]:
        """Return what a notebook shows of an uncaught error: the finding, and below it a traceback where one helps."""
        if self.finding.place is not None and not are_tracebacks_wanted():
            return [str(self), "", f"(`%env {_TRACEBACK_VARIABLE}=1` shows the traceback as well)"]
        lines = "".join(traceback.format_tb(self.__traceback__)).splitlines()
        return [str(self), "", "Traceback (most recent call last):", *lines]

    @property
    def code(self) -> str:
        """The finding's code, as in `L002`."""
        return self.finding.code

    @classmethod
    def of(
        cls: Type[_Error],
        code: str,
        *,
        message: Optional[str] = None,
        place: Optional[Place] = None,
        label: str = "",
        notes: Union[str, Sequence[str]] = (),
        help: Union[str, Sequence[str]] = (),
        severity: Optional[Severity] = None,
    ) -> _Error:
        """Make the error and its finding in one go; the arguments are those of `Finding`."""
        return cls(Finding(code, message, place=place, label=label, notes=notes, help=help, severity=severity))

    @classmethod
    def at_caller(
        cls: Type[_Error],
        code: str,
        *,
        message: Optional[str] = None,
        label: str = "",
        notes: Union[str, Sequence[str]] = (),
        help: Union[str, Sequence[str]] = (),
    ) -> _Error:
        """Make the error and its finding, whose place is the user's line that led here."""
        return cls.of(code, message=message, place=caller_place(), label=label, notes=notes, help=help)


_TRACEBACK_VARIABLE = "PORTING_TRACEBACK"


def are_tracebacks_wanted() -> bool:
    """Tell whether the environment variable PORTING_TRACEBACK asks for tracebacks beside findings."""
    return os.environ.get(_TRACEBACK_VARIABLE, "0") != "0"


class BatchError(PortingError):
    """Codes B: a batch or a dataset does not fit the compiled step or the options."""


class CaptureError(PortingError):
    """Codes C and L: a model or its loss cannot become a static graph."""


class CheckpointError(PortingError):
    """Codes K: a checkpoint is damaged or belongs to another model."""


class DeviceError(PortingError):
    """Codes D and S: a device is missing, or cannot do what a call of a ported model needs."""


class ExecutableError(PortingError):
    """Codes E: a program, an exported step or an executable cannot be loaded, made or used."""


class OptionError(PortingError):
    """Codes P: an option has a value that it cannot have."""


class UnsupportedOptimizerError(PortingError):
    """Codes O: an optimizer, one of its settings, or its schedule cannot run on the device."""


def require_extra(module: str, *, extra: str, message: str, help: Sequence[str] = ()) -> Any:
    """Import `module`; raises PortingError X001, which names the `extra` to install, where its package is missing.

    >>> require_extra("json", extra="bench", message="never said").__name__
    'json'
    """
    package = module.partition(".")[0]
    try:
        # a module of a package that is blocked may be loaded already
        importlib.import_module(package)
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise PortingError.at_caller(
            "X001", message=message, help=(f'pip install "ipu-porting[{extra}]"', *help)
        ) from error
