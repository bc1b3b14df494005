"""Show one progress bar for a training, on a terminal or in a notebook; what a program prints stands above it."""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
from typing import Any, Iterable, Iterator, Optional, Sized, TextIO

from tqdm.auto import tqdm

from ..structure import Structure
from .callbacks import FitState

__all__ = ["ProgressBar"]


class ProgressBar:
    """The callback that shows the epoch, its calls, and the metrics so far; quiet elsewhere."""

    def __init__(self, loader: Iterable[Structure], *, is_wanted: bool) -> None:
        """Choose where to show it; nothing is shown before the training begins."""
        self._total = len(loader) if isinstance(loader, Sized) else None
        self._is_shown = is_wanted and (_is_notebook() or _is_terminal())
        self._bar: Optional[Any] = None

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Show the bar while the block runs, and print above it; without a terminal nothing is changed."""
        if not self._is_shown:
            yield
            return
        sizes = {}
        if not _is_notebook():
            # of a terminal that does not know its size, as a container's, nothing would be shown
            sizes["ncols"], sizes["nrows"] = shutil.get_terminal_size()
        with contextlib.ExitStack() as held, tqdm(total=self._total, file=sys.stderr, unit="call", **sizes) as bar:
            self._bar = bar
            if not _is_notebook():
                above = [_AboveBar(stream, bar) for stream in (sys.stdout, sys.stderr)]
                for stream in above:
                    held.callback(stream.close_line)
                held.enter_context(contextlib.redirect_stdout(above[0]))
                held.enter_context(contextlib.redirect_stderr(above[1]))
            yield

    def on_train_epoch_start(self, state: FitState) -> None:
        """Begin the line again, for this epoch."""
        if self._bar is not None:
            self._bar.reset(self._total)
            self._bar.set_description_str(f"epoch {state.epoch}/{state.num_epochs}")

    def on_train_batch_end(self, state: FitState, _returned: Structure, _batch: Structure, batch_index: int) -> None:
        """Count a call, and say since when the loss is no number."""
        if self._bar is None:
            return
        self._bar.update(batch_index + 1 - self._bar.n)
        if math.isfinite(state.loss):
            validated = {name: f"{value:.3g}" for name, value in state.metrics.items() if name.startswith("val_")}
            self._bar.set_postfix({"loss": f"{state.loss:.3g}", **validated}, refresh=False)
            return
        first = state.ported.report().first_call_not_finite
        # short, as a terminal has little room; the warning L008 says the rest
        self._bar.set_postfix_str(f"loss={state.loss}" + (f" since call {first}" if first else ""))

    def on_train_epoch_end(self, state: FitState) -> None:
        """Show the metrics of the epoch."""
        if self._bar is not None:
            self._bar.set_postfix({name: f"{value:.3g}" for name, value in state.metrics.items()})


class _AboveBar:
    """A stream whose lines are written above a bar, each when it is whole."""

    def __init__(self, stream: TextIO, bar: Any) -> None:
        self._stream = stream
        self._bar = bar
        self._line = ""

    def write(self, text: str) -> int:
        """Write the lines that are whole now."""
        lines, end, self._line = (self._line + text).rpartition("\n")
        if end:
            self._write_above(lines + end)
        return len(text)

    def close_line(self) -> None:
        """Write a line that has not ended."""
        if self._line:
            self._write_above(self._line)
            self._line = ""

    def _write_above(self, text: str) -> None:
        with self._bar.get_lock():
            self._bar.clear(nolock=True)
            self._stream.write(text)
            self._stream.flush()
            self._bar.refresh(nolock=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_notebook() -> bool:
    """Tell whether the program runs in the kernel of a notebook, whose streams are no terminals."""
    return "ipykernel.zmqshell" in sys.modules


def _is_terminal() -> bool:
    return sys.stderr.isatty()
