"""Train a ported model in a plain loop with progress bars: `fit`.

Programs that need no loop of their own call it.
"""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from typing import Any, Callable, List, Optional, Sequence, Union

from tqdm import tqdm

from .api import PortedModel
from .api.fit_checkpoints import FitCheckpoints, FitProgress
from .structure import make_call_arguments

__all__ = ["fit"]


def fit(
    ported: PortedModel,
    loader: Any,
    epochs: int,
    *,
    progress: bool = True,
    after_call: Optional[Callable[[Any], Any]] = None,
    after_epoch: Optional[Callable[[int, float], Any]] = None,
    checkpoint: Union[str, os.PathLike[str], None] = None,
    every: Optional[int] = None,
    keep: int = 5,
    resume: bool = True,
    schedulers: Sequence[Any] = (),
) -> List[float]:
    """Train for `epochs` passes over `loader` and return the mean loss of each epoch.

    `loader` yields combined batches, as `ported.dataloader(...)` does: tuples or lists are positional arguments,
    dictionaries keywords. After `eval()` it switches to training again. The loss of a call is the mean of what the
    output mode returns; the bar says since which call it is NaN or infinite, as the warning L008 and
    the report do; `PortOptions(debug_nan=True)` ends the training there with the line (L009). Ctrl-C stops the
    loop and leaves the model with what it has learnt. No batch at all gives NaN.

    `after_call` is called with the results of each call, losses and metrics included. `after_epoch` is called with the
    number of the epoch, counted from 1, and its mean loss; it may test the model and leave it in `eval()`.

    `checkpoint` is a folder that gets a checkpoint after each epoch and, with `every`, after each so many optimizer
    steps; the newest `keep` stay. With `resume` a training that has ended early, however it ended, continues from the
    newest, in the middle of an epoch too: the losses that follow are the same bit for bit. `schedulers` are
    those that are not connected by `ported.scheduler`. See docs/checkpoints.md for what belongs to that.

    >>> import torch
    >>> from porting import to_ipu
    >>> ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss())
    >>> batches = [(torch.ones(6, 4), torch.zeros(6, dtype=torch.int64))]
    >>> first, second = fit(ported, batches, epochs=2, progress=False)
    >>> second < first
    True
    """
    kept: Optional[FitCheckpoints] = None
    made = FitProgress()
    with ExitStack() as held:
        if checkpoint is not None:
            kept = FitCheckpoints(ported, loader, checkpoint, every=every, keep=keep, schedulers=schedulers)
            held.enter_context(kept.hold_folder())
            made = kept.resume() if resume else kept.begin()
        for _epoch in tqdm(range(len(made.history), epochs), desc="epochs", disable=not progress):
            ported.train()
            # tqdm asks a loader for its length, but an epoch that may begin in its middle is an iterator
            num_seen, batches = (0, loader) if kept is None else (kept.progress.num_calls, kept.begin_epoch())
            length = len(loader) - num_seen if batches is not loader and hasattr(loader, "__len__") else None
            bar = tqdm(batches, desc="batches", total=length, leave=False, disable=not progress)
            for batch in bar:
                args, kwargs = make_call_arguments(batch)
                returned = ported(*args, **kwargs)
                loss = float(ported.loss_of(returned).float().mean())
                made.note_call(loss)
                if not math.isfinite(loss):
                    first = ported.report().first_call_not_finite
                    since = f" since call {first}; `ported.find_nan(batch)` names the line" if first else ""
                    bar.set_postfix_str(f"the loss is {loss}{since}")
                if after_call is not None:
                    after_call(returned)
                if kept is not None:
                    kept.note_call()
            made.end_epoch()
            if after_epoch is not None:
                after_epoch(len(made.history), made.history[-1])
            if kept is not None:
                kept.note_epoch()
    return made.history
