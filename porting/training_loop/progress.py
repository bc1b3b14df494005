"""Show one progress bar for a training, on a terminal or in a notebook; what a program prints stands above it."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any, Iterable, Iterator, Optional, Sized

from tqdm.auto import tqdm
from tqdm.contrib import DummyTqdmFile

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
        with contextlib.ExitStack() as held, tqdm(total=self._total, file=sys.stderr, unit="call") as bar:
            self._bar = bar
            if not _is_notebook():
                held.enter_context(contextlib.redirect_stdout(DummyTqdmFile(sys.stdout)))
                held.enter_context(contextlib.redirect_stderr(DummyTqdmFile(sys.stderr)))
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
        since = f" since call {first}; `ported.find_nan(batch)` names the line" if first else ""
        self._bar.set_postfix_str(f"the loss is {state.loss}{since}")

    def on_train_epoch_end(self, state: FitState) -> None:
        """Show the metrics of the epoch."""
        if self._bar is not None:
            self._bar.set_postfix({name: f"{value:.3g}" for name, value in state.metrics.items()})


def _is_notebook() -> bool:
    """Tell whether the program runs in the kernel of a notebook, whose streams are no terminals."""
    return "ipykernel.zmqshell" in sys.modules


def _is_terminal() -> bool:
    return sys.stderr.isatty()
