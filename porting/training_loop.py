"""`fit`: the plain training loop of a ported model, with progress bars and nothing hidden."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from tqdm import tqdm

from .api import PortedModel

__all__ = ["fit"]


def fit(
    ported: PortedModel,
    loader: Any,
    epochs: int,
    *,
    progress: bool = True,
    after_call: Optional[Callable[[Any], Any]] = None,
    after_epoch: Optional[Callable[[int, float], Any]] = None,
) -> List[float]:
    """Train for `epochs` passes over `loader` and return the mean loss of each epoch.

    `loader` yields combined batches, as `ported.dataloader(...)` does: tuples or lists are positional arguments,
    dictionaries keywords. After `eval()` it switches to training again. The loss of a call is the mean of what the
    output mode returns. Ctrl-C stops the loop and leaves the model with what it has learnt. No batch at all gives NaN.

    `after_call` is called with what each call returned, losses and metrics included. `after_epoch` is called with the
    number of the epoch, counted from 1, and its mean loss; it may test the model and leave it in `eval()`.

    >>> import torch
    >>> from porting import to_ipu
    >>> ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss())
    >>> batches = [(torch.ones(6, 4), torch.zeros(6, dtype=torch.int64))]
    >>> first, second = fit(ported, batches, epochs=2, progress=False)
    >>> second < first
    True
    """
    history: List[float] = []
    for epoch in tqdm(range(epochs), desc="epochs", disable=not progress):
        ported.train()
        total, count = 0.0, 0
        for batch in tqdm(loader, desc="batches", leave=False, disable=not progress):
            args, kwargs = _call_arguments(batch)
            returned = ported(*args, **kwargs)
            total, count = total + float(ported.loss_of(returned).float().mean()), count + 1
            if after_call is not None:
                after_call(returned)
        history.append(total / count if count else float("nan"))
        if after_epoch is not None:
            after_epoch(epoch + 1, history[-1])
    return history


def _call_arguments(batch: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}
