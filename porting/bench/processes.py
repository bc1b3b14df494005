"""Starting Python again, and saying how it ended."""

from __future__ import annotations

import os
import sys
from typing import Dict

__all__ = ["child_environment", "describe_exit"]

_SHOWN_LINES = 3


def child_environment() -> Dict[str, str]:
    """Return this process's environment, with its import path for those that are started with it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def describe_exit(status: int, output: str) -> str:
    """Say how a process ended, with the last lines that it printed.

    >>> describe_exit(-9, "")
    'signal 9: killed, as the system does when memory runs out'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = "; ".join(lines[-_SHOWN_LINES:])
    if status == -9:
        return "signal 9: killed, as the system does when memory runs out"
    if status < 0:
        return f"signal {-status}" + (f": {said}" if said else "")
    return f"exit status {status}" + (f": {said}" if said else "")
