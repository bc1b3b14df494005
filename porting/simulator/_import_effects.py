"""Do to the process what importing PopTorch does: crash reports, a log of uncaught errors, settings of libraries.

The vendor's package does the same, so a program sees one world whether it runs on IPUs or here. Two things are milder:
an ``excepthook`` of another library is still called, and crash reports that are on already stay as they are.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from types import TracebackType
from typing import Any, Callable, Optional, TextIO, Type

import torch
from tqdm.std import TqdmDefaultWriteLock, tqdm

from ..support.compiler_loading import optimizers_load_compiler_late
from ..torch_insides.tensors import exchange_printing
from ._logging import logger, poptorchAtExit

__all__ = ["apply_import_effects", "has_descriptor", "registerGeometricCustomArgParsers"]

_Hook = Callable[[Type[BaseException], BaseException, Optional[TracebackType]], Any]

_are_applied = False


def apply_import_effects() -> None:
    """Apply all effects once, even if the package is executed again through its loader."""
    global _are_applied
    if _are_applied:
        return
    _are_applied = True
    # libibverbs must survive the fork of data loading processes
    os.environ.setdefault("RDMAV_FORK_SAFE", "1")
    atexit.register(poptorchAtExit)
    _enable_crash_reports()
    sys.excepthook = _make_logging_hook(sys.excepthook)
    _hide_values_on_the_device()
    _release_progress_bars()
    registerGeometricCustomArgParsers()
    optimizers_load_compiler_late()


def registerGeometricCustomArgParsers() -> None:
    """Let ``poptorch_geometric`` register its types as arguments of models; log the reason if it fails."""
    try:
        types = importlib.import_module("poptorch_geometric.types")
    except ImportError as error:
        is_installed = not isinstance(error, ModuleNotFoundError) or error.name != "poptorch_geometric"
        logger.log(
            logging.WARNING if is_installed else logging.DEBUG,
            "The types of poptorch_geometric are not registered as arguments of models: %s",
            error,
        )
        return
    types.registerCustomArgParsers()


def _enable_crash_reports() -> None:
    # the descriptor is kept until the process ends, so the stream must not be one that a test or a notebook closes
    stream = next((stream for stream in (sys.__stderr__, sys.stderr) if has_descriptor(stream)), None)
    if stream is None:
        return
    # the program that switched them on chose their file
    if not faulthandler.is_enabled():
        faulthandler.enable(stream)
    if _is_instance():
        return  # who started the instances stops them when one fails, and says so
    if hasattr(faulthandler, "register") and threading.current_thread() is threading.main_thread():
        faulthandler.register(signal.SIGTERM, file=stream, chain=True)


def has_descriptor(stream: Optional[TextIO]) -> bool:
    """Tell whether the stream has a file descriptor; in notebooks and tests it is often only a Python object."""
    try:
        return stream is not None and stream.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


def _make_logging_hook(previous: _Hook) -> _Hook:
    """Return an ``excepthook`` that logs; another tool's is called afterwards, Python's own is replaced."""

    def log_uncaught(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        # what comes over all instances at once is one line: the same traceback from each would hide the reason
        if _is_instance() and isinstance(error, KeyboardInterrupt):
            text = "interrupted"
        elif _is_instance() and getattr(error, "type", "") == "popdist_error":
            text = str(error) or text
        if isinstance(error, subprocess.CalledProcessError):
            for name, output in (("stdout", error.stdout), ("stderr", error.stderr)):
                if output:
                    shown = output.decode(errors="replace") if isinstance(output, bytes) else output
                    text += f"\n{name} of the command:\n{shown}"
        is_logged = logger.isEnabledFor(logging.CRITICAL)
        logger.critical("%s", text)
        # an error must be visible, also in a program that switched logging off
        if previous is not sys.__excepthook__ or not is_logged:
            previous(kind, error, trace)

    return log_uncaught


def _is_instance() -> bool:
    """Tell whether `porting run` started this process as one of several."""
    return bool(os.environ.get("PORTING_RENDEZVOUS"))


def _release_progress_bars() -> None:
    """Let progress bars share no lock with forked processes, which it blocks for ever if it is held during the fork."""
    if not hasattr(TqdmDefaultWriteLock, "mp_lock"):
        # making the lock would decide how this program's processes start, and outlives one that is killed
        TqdmDefaultWriteLock.mp_lock = None
    lock = tqdm.get_lock()
    if isinstance(lock, TqdmDefaultWriteLock):
        lock.locks = []


def _hide_values_on_the_device() -> None:
    # a device tensor has no values: without this, printing one would fail inside torch
    def write_values(to_text: Callable[[torch.Tensor, int], str]) -> Callable[[torch.Tensor, int], str]:
        def tensor_str(tensor: torch.Tensor, indent: int) -> str:
            return "<unavailable>" if tensor.device.type == "ipu" else to_text(tensor, indent)

        return tensor_str

    exchange_printing(write_values)
