"""Deliver findings to the user: as warnings, on a log, as a command's output, or as the last words of a program."""

from __future__ import annotations

import logging
import sys
import warnings
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Dict, Iterator, Optional, Set, Type, Union

from porting.diagnostics.errors import PortingError, are_tracebacks_wanted
from porting.diagnostics.findings import Finding, render
from porting.diagnostics.places import Place, caller_place
from porting.diagnostics.terminal import fit, show

__all__ = [
    "PortingWarning",
    "log_finding",
    "log_in_one_line",
    "notify",
    "print_finding",
    "show_findings_alone",
    "warnings_as_findings",
]

_logger = logging.getLogger("porting")


class PortingWarning(UserWarning):
    """A finding shown as a warning: its text is the rendered finding, `.finding` the same as data."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return render(self.finding)


def notify(finding: Finding) -> None:
    """Warn about `finding` at its place; without one, at the user's line that led here.

    Python's own filters apply: by default the same finding is shown once for each line of the user's that leads to
    it, and `warnings.simplefilter("error", PortingWarning)` turns findings into errors.

    >>> with warnings.catch_warnings(record=True) as shown:
    ...     warnings.simplefilter("always")
    ...     notify(Finding("B006", "3 samples are dropped"))
    >>> shown[0].message.finding.code
    'B006'
    """
    # a command or a thread has no line of the user's, and what starts them is none
    place = finding.place or caller_place() or Place("porting", 0)
    registry = _ALREADY_SHOWN.setdefault(place.file, {})
    warnings.warn_explicit(PortingWarning(finding), PortingWarning, place.file, place.line, registry=registry)


# Python keeps here what its filters let pass once, as it does in each module for `warnings.warn`, by file.
_ALREADY_SHOWN: Dict[str, Dict[Any, Any]] = {}


@contextmanager
def warnings_as_findings(format: str = "text") -> Iterator[None]:
    """Print what `notify` tells as a command prints findings, without the lines that Python puts around it."""
    previous = warnings.formatwarning
    _show_warnings_alone(format)
    try:
        yield
    finally:
        warnings.formatwarning = previous


def _show_warnings_alone(format: str = "text") -> None:
    """Let Python print findings that are warnings as they are; other warnings keep their lines."""
    previous = warnings.formatwarning

    def write(
        message: Union[Warning, str], category: Type[Warning], filename: str, lineno: int, line: Optional[str] = None
    ) -> str:
        if isinstance(message, PortingWarning):
            text = render(message.finding, format)
            return (fit(text, sys.stderr) if format == "text" else text) + "\n"
        return previous(message, category, filename, lineno, line)

    # not `showwarning`, which a program that records its warnings replaces
    warnings.formatwarning = write


def log_finding(finding: Finding, *, once: bool = False) -> None:
    """Write `finding` to the `porting` logger: it is about the machine or the cache, and not about a line.

    With `once`, a process logs its code a single time.
    """
    if once and finding.code in _LOGGED:
        return
    if once:
        _LOGGED.add(finding.code)
    _logger.warning("%s", render(finding))


_LOGGED: Set[str] = set()


def log_in_one_line(finding: Finding, logger: logging.Logger) -> None:
    """Write `finding` to the `logger` of a backend, whose messages are single lines.

    Its place is in brackets, or its notes where it has none.
    """
    notes = "".join(f" ({text})" for text in ([str(finding.place)] if finding.place is not None else finding.notes))
    remedies = "".join(f". {text[:1].upper()}{text[1:]}" for text in finding.help)
    logger.warning("%s: %s%s%s", finding.code, finding.message, notes, remedies)


def print_finding(finding: Finding, format: str = "text") -> None:
    """Write `finding` to standard error in one of `FORMATS`, in colours where that is a terminal."""
    if format == "text":
        show(render(finding), sys.stderr)
    else:
        sys.stderr.write(render(finding, format) + "\n")


def show_findings_alone() -> None:
    """Print uncaught findings and those that are warnings as the command does; other errors keep their tracebacks.

    PopTorch installs a hook of its own, which logs an error as critical and prints the traceback of each of its
    causes. The environment variable PORTING_TRACEBACK=1 restores tracebacks.
    """
    previous = sys.excepthook
    if getattr(previous, "shows_findings_alone", False):
        return

    def show_error(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        if isinstance(error, PortingError) and not are_tracebacks_wanted():
            print_finding(error.finding)
        else:
            previous(kind, error, trace)

    show_error.shows_findings_alone = True  # type: ignore[attr-defined]
    sys.excepthook = show_error
    _show_warnings_alone()
