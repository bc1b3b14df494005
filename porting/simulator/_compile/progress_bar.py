"""The progress bar of a compilation, which also measures how long it took."""

from __future__ import annotations

import datetime
import sys
import time
from typing import Any, Dict, Optional

from tqdm import tqdm

__all__ = ["CompilationProgressBar"]

_TITLE = "Graph compilation"
_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}]"


class CompilationProgressBar:
    """A callable ``(progress, total)`` that shows a bar and remembers the time from its first call to its last.

    What ends within ``delay_seconds`` is not shown.

    >>> CompilationProgressBar().compilation_time is None
    True
    """

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self._delay_seconds = delay_seconds
        self._bar: Optional[tqdm] = None
        self._start_seconds: Optional[float] = None
        self._duration_seconds: Optional[float] = None

    def __call__(self, progress: int, total: int) -> None:
        """Show that ``progress`` of ``total`` is done; the bar ends when they are equal.

        A log file or a pipe gets one line at the end instead of a bar that moves.
        """
        now_seconds = time.perf_counter()
        if self._start_seconds is None:
            self._start_seconds, self._duration_seconds = now_seconds, None
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = tqdm(total=total, desc=_TITLE, bar_format=_FORMAT, delay=self._delay_seconds)
            self._bar.update(progress - self._bar.n)
        if progress >= total:
            self._duration_seconds = now_seconds - self._start_seconds
            if self._bar is None and self._duration_seconds >= self._delay_seconds:
                line = tqdm.format_meter(total, total, self._duration_seconds, prefix=_TITLE, bar_format=_FORMAT)
                # unlike `sys.stderr.write`, this leaves the bar of a program's own loop whole
                tqdm.write(line, file=sys.stderr)
            self.close()

    def close(self) -> None:
        """End an unfinished bar, for a compilation that failed."""
        self._start_seconds = None
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    @property
    def compilation_time(self) -> Optional[datetime.timedelta]:
        """The time that the last finished compilation took, None before."""
        return None if self._duration_seconds is None else datetime.timedelta(seconds=self._duration_seconds)

    def __getstate__(self) -> Dict[str, Any]:
        # A bar on the screen belongs to the process and the object that started it.
        return {**self.__dict__, "_bar": None}
