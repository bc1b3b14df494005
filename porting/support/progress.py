"""Show the stage that a command is at, on a terminal, once the stage has taken two seconds."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from typing import Callable, Iterator, List, TextIO

__all__ = ["show_progress"]

_SILENT_SECONDS = 2.0
_POLL_SECONDS = 0.2


@contextmanager
def show_progress(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Yield a function that takes the present stage; it is shown with the elapsed time, and erased at the end.

    Nothing is shown in the first two seconds, or without a terminal.
    """
    if not stream.isatty():
        yield lambda _stage: None
        return
    stages, done = [""], threading.Event()
    shower = threading.Thread(target=_show_stages, args=(stream, stages, done), daemon=True)
    shower.start()
    try:
        yield stages.append
    finally:
        done.set()
        shower.join()


def _show_stages(stream: TextIO, stages: List[str], done: threading.Event) -> None:
    if done.wait(_SILENT_SECONDS):
        return
    from tqdm import tqdm

    # of a terminal that does not know its size, as a container's, nothing would be shown
    columns, rows = shutil.get_terminal_size()
    with tqdm(bar_format="{desc} {elapsed}", leave=False, file=stream, ncols=columns, nrows=rows) as bar:
        bar.start_t -= _SILENT_SECONDS
        while not done.wait(_POLL_SECONDS):
            bar.set_description_str(stages[-1])
