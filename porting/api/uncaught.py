"""What a program shows when a finding ends it: the finding with its line, and no traceback through libraries."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Optional, Type

from ..diagnostics import PortingError, print_finding

__all__ = ["show_findings_alone"]

_VARIABLE = "PORTING_TRACEBACK"


def show_findings_alone() -> None:
    """Let findings that nobody catches be printed as the command line prints them; all other errors stay as they are.

    PopTorch installs a hook of its own, which logs an error as critical and prints the traceback of each of its
    causes. The environment variable PORTING_TRACEBACK=1 brings tracebacks back.
    """
    previous = sys.excepthook
    if getattr(previous, "shows_findings_alone", False):
        return

    def show(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        if isinstance(error, PortingError) and os.environ.get(_VARIABLE, "0") == "0":
            print_finding(error.finding)
        else:
            previous(kind, error, trace)

    show.shows_findings_alone = True  # type: ignore[attr-defined]
    sys.excepthook = show
