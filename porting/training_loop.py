"""`fit`: the plain training loop of a ported model, with progress bars and nothing hidden."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from tqdm import tqdm

from .api import PortedModel

__all__ = ["fit"]


def fit(ported: PortedModel, loader: Any, epochs: int, *, progress: bool = True) -> List[float]:
    """Train for `epochs` passes over `loader` and return the mean loss of each epoch.

    `loader` yields combined batches, as `ported.dataloader(...)` does: tuples or lists are positional arguments,
    dictionaries keywords. After `eval()` it switches to training again. The loss of a call is the mean of what the
    output mode returns. Ctrl-C stops the loop and leaves the model with what it has learnt. No batch at all gives NaN.

    >>> import torch
    >>> from porting import to_ipu
    >>> ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss())
    >>> batches = [(torch.ones(6, 4), torch.zeros(6, dtype=torch.int64))]
    >>> first, second = fit(ported, batches, epochs=2, progress=False)
    >>> second < first
    True
    """
    history: List[float] = []
    ported.train()
    for _epoch in tqdm(range(epochs), desc="epochs", disable=not progress):
        total, count = 0.0, 0
        for batch in tqdm(loader, desc="batches", leave=False, disable=not progress):
            args, kwargs = _call_arguments(batch)
            loss = ported.loss_of(ported(*args, **kwargs))
            total, count = total + float(loss.float().mean()), count + 1
        history.append(total / count if count else float("nan"))
    return history


def _call_arguments(batch: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}
