"""Write to two log channels: ``poptorch::python``, a Python logger, and ``poptorch:cpp``, that of the compiled part."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TextIO, Tuple, Union

from ..diagnostics import Finding, log_in_one_line

__all__ = [
    "cpp_log",
    "cpp_log_enabled",
    "log_as_vendor",
    "logger",
    "poptorchAtExit",
    "setLogLevel",
    "setPopartLogLevel",
    "set_max_repeat_logs",
]

# The vendor's names and numbers; there is no 5.
LOG_LEVELS = {"TRACE": 0, "TRACE_ALL": 0, "DEBUG": 1, "DEBUG_IR": 1, "INFO": 2, "WARN": 3, "ERR": 4, "OFF": 6}
DEFAULT_MAX_REPEAT_LOGS = 4

_PYTHON_LEVELS = {0: "DEBUG", 1: "DEBUG", 2: "INFO", 3: "WARNING", 4: "ERROR", 6: "CRITICAL"}
# those that the compiled part writes at; it has no level for a critical error
_NATIVE_LEVELS = {"trace": 0, "debug": 1, "info": 2, "warning": 3, "error": 4}
_COLOURS = {"debug": "36", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}

logger = logging.getLogger("poptorch::python")


def setLogLevel(level: Union[str, int]) -> None:
    """Set the level of both channels: a name (``"DEBUG"``) or its number.

    Numbers are TRACE 0, DEBUG 1, INFO 2, WARN 3, ERR 4, OFF 6. Raises `ValueError` for any other.
    """
    if isinstance(level, int):
        if level not in LOG_LEVELS.values():
            raise ValueError("Invalid log level integer")
    elif level not in LOG_LEVELS:
        raise ValueError(f"Unknown log level: {level}. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN")
    _channel.level = level if isinstance(level, int) else LOG_LEVELS[level]
    logger.setLevel(_PYTHON_LEVELS[_channel.level])


def setPopartLogLevel(level: str) -> None:
    """Accept a level by its name for the log of the graph compiler, which is not simulated; `ValueError` for others."""
    if not isinstance(level, str) or level not in LOG_LEVELS:
        raise ValueError(f"Level must be one of {', '.join(LOG_LEVELS)}")


def cpp_log(level: str, message: str) -> None:
    """Write one line to the ``poptorch:cpp`` channel if ``level`` is enabled.

    ``level`` is ``trace``, ``debug``, ``info``, ``warning`` or ``error``. The line goes where ``POPTORCH_LOG_DEST``
    says: ``stdout``, ``stderr`` (default) or the name of a file, to which it is appended. A line equal to the
    previous one is left out after it was repeated often enough, and the next other line says how often.
    """
    if cpp_log_enabled(level):
        _channel.write(level, message)


def cpp_log_enabled(level: str) -> bool:
    """Tell whether `cpp_log` would write a line of this level, for lines that are costly to build."""
    return _NATIVE_LEVELS[level] >= _channel.level


def set_max_repeat_logs(num_repeats: int) -> None:
    """Set how many equal lines in a row `cpp_log` writes before it leaves them out (``Options.maxRepeatLogs``)."""
    _channel.max_repeats = num_repeats


def log_as_vendor(finding: Finding) -> None:
    """Write a finding that does not stop the work as one of PopTorch's lines; C011 has PopTorch's own words."""
    if finding.code == "C011":
        logger.warning(finding.message)
    else:
        log_in_one_line(finding, logger)


def poptorchAtExit() -> None:
    """End the compiled part's log: lines that were left out as repeated are counted in a last one."""
    _channel.flush()


class _NativeChannel:
    """Level, destination and repetition count of the ``poptorch:cpp`` channel."""

    def __init__(self) -> None:
        self.level = LOG_LEVELS["WARN"]
        self.max_repeats = DEFAULT_MAX_REPEAT_LOGS
        self._last: Tuple[str, str] = ("", "")
        self._num_equal = 0

    def write(self, level: str, message: str) -> None:
        # A device that reports a fault in each micro-batch would fill the log.
        if (level, message) == self._last:
            self._num_equal += 1
            if self._num_equal > self.max_repeats:
                return
        else:
            self.flush()
            self._last, self._num_equal = (level, message), 1
        self._emit_line(level, message)

    def flush(self) -> None:
        num_left_out = self._num_equal - self.max_repeats
        self._num_equal = 0
        if num_left_out > 0:
            self._emit_line(self._last[0], f"last line repeated {num_left_out} more times")

    @staticmethod
    def _emit_line(level: str, message: str) -> None:
        line = f"[{_format_clock(time.time())}] [poptorch:cpp] [{level}] {message}\n"
        # looked up for each line, as the streams are: programs and tests replace them
        destination = os.environ.get("POPTORCH_LOG_DEST", "stderr")
        if destination in ("stdout", "stderr"):
            getattr(sys, destination).write(line)
            return
        with open(destination, "a", encoding="utf-8") as log_file:
            log_file.write(line)


class _StderrHandler(logging.StreamHandler):
    """A handler that looks up ``sys.stderr`` for each record: test runners and notebooks replace the stream."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


class _Formatter(logging.Formatter):
    """``[HH:MM:SS.mmm] [poptorch::python] [level] message``, coloured on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        if level in _COLOURS and sys.stdout.isatty() and sys.stderr.isatty():
            level = f"\x1b[{_COLOURS[level]}m{level}\x1b[0m"
        text = f"[{_format_clock(record.created)}] [{record.name}] [{level}] {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _format_clock(seconds: float) -> str:
    milliseconds = int(seconds % 1 * 1000)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{milliseconds:03d}"


def _start_python_channel() -> None:
    # A module that is executed again (a library does so through the module's loader) must not print each line twice.
    if not any(type(handler).__name__ == _StderrHandler.__name__ for handler in logger.handlers):
        handler = _StderrHandler()
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
    setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL") or "WARN")


_channel = _NativeChannel()
_start_python_channel()
