"""Do the job of a `BoundProcess`: this side reports how it went, and dies with the process that started it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Dict

from .bound_process import JOB, READY, RESULT
from .process import signal_descendants, signal_with_parent

__all__ = ["main"]

# The longest that an orphan computes on after its parent has died with the pipe held open by a fork.
_LOOK_SECONDS = 1.0


def main(work_folder: str) -> int:
    """Do the job of a work folder; returns the exit status."""
    work = Path(work_folder)
    # Before anything slow: importing torch and Inductor takes seconds in which the parent may die.
    _die_with_parent(work)
    warnings.simplefilter("ignore")
    try:
        job = json.loads((work / JOB).read_text(encoding="utf-8"))
        if job["is_idle"]:
            _give_way()
        module, _, name = job["function"].partition(":")
        outcome: Dict[str, Any] = {"returned": getattr(import_module(module), name)(job["arguments"], work)}
    except Exception as error:
        traceback.print_exc()
        # The traceback goes to the log, the line to the parent, which tells kinds of failures apart by it.
        outcome = {"error": f"{type(error).__name__}: {error}"}
    (work / RESULT).write_text(json.dumps(outcome), encoding="utf-8")
    return 1 if "error" in outcome else 0


def _give_way() -> None:
    """Let this process and its children use only idle processor time."""
    with suppress(OSError):
        os.nice(19)
    with suppress(AttributeError, OSError):  # Linux only
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _die_with_parent(work: Path) -> None:
    """Watch the pipe that is the standard input; its end is the parent's. What this process starts gets no input."""
    # The pipe moves to another descriptor, out of the reach of what this process starts.
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    parent = os.getppid()

    def watch() -> None:
        # It ends when the pipe is readable without anybody writing: the other end is closed. But a process that the
        # parent forked may hold the pipe open for longer than the parent lives.
        while os.getppid() == parent and not select.select([lifeline], [], [], _LOOK_SECONDS)[0]:
            pass
        shutil.rmtree(work, ignore_errors=True)
        # if they were paused with this one, they would not notice
        signal_descendants(os.getpid(), signal.SIGCONT)
        # Its children too, and this very process: nothing after this line runs.
        os.killpg(os.getpgrp(), signal.SIGKILL)

    if sys.platform == "linux":
        # one that is paused then continues, and notices
        signal_with_parent(signal.SIGCONT)
        (work / READY).touch()
    # last, because it may clear the folder away at once
    threading.Thread(target=watch, daemon=True).start()
