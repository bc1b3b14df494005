"""A training's position in its epoch: the random streams that the order was drawn from, and the way back to them."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional

import torch.utils.data
from torch.utils.data import SequentialSampler

from porting.adapters.random_streams import find_host_streams, find_streams, read_states, set_states
from porting.diagnostics import OptionError

__all__ = ["begin_epoch_again", "read_streams", "refuse_unknown_order", "set_streams"]


def read_streams(loader: Any = None) -> Dict[str, Any]:
    """Return the states of the host's streams, and of those in `loader` when there is one, as plain values."""
    states: Dict[str, Any] = {"host": read_states(find_host_streams())}
    if loader is not None:
        states["loader"] = read_states(find_streams(loader))
        states["has_workers"] = getattr(loader, "_iterator", None) is not None
    return states


def set_streams(states: Mapping[str, Any], loader: Any = None) -> List[str]:
    """Let the host's streams, and those in `loader`, go on from `states`; return the names of those that do not fit."""
    missing = set_states(find_host_streams(), states["host"])
    if loader is not None and "loader" in states:
        missing += [f"loader.{name}" for name in set_states(find_streams(loader), states["loader"])]
    return missing


def begin_epoch_again(
    loader: Any, start: Mapping[str, Any], *, num_seen: int = 0, present: Optional[Mapping[str, Any]] = None
) -> Iterator[Any]:
    """Resume an epoch of `loader` after its first `num_seen` batches; `start` are the streams as the epoch began.

    Afterwards the streams are set to `present`, if that is given. Where this process reads the samples itself, those
    that were seen are not read again: only their order is drawn. Loading processes read them again, because
    what they draw meanwhile decides what the later samples draw.
    """
    if start.get("has_workers") and getattr(loader, "persistent_workers", False) and loader._iterator is None:
        # the processes were there when the epoch began, and starting them draws a number
        iter(loader)
    set_streams(start, loader)
    batches = iter(loader)
    seen = _find_order(loader, batches) if num_seen else batches
    for _ in range(num_seen):
        next(seen, None)
    if present is not None:
        set_streams(present, loader)
    return batches


def _find_order(loader: Any, batches: Any) -> Iterator[Any]:
    """Return what can be advanced in the place of `batches` without reading a sample, or `batches` itself."""
    is_plain = isinstance(loader, torch.utils.data.DataLoader) and not loader.num_workers
    if is_plain and not isinstance(loader.dataset, torch.utils.data.IterableDataset):
        order: Iterator[Any] = getattr(batches, "_sampler_iter", batches)
        return order
    return batches


def refuse_unknown_order(loader: Any) -> None:
    """Refuse (OptionError P002) a loader whose order is drawn in another process, where no checkpoint sees it."""
    if getattr(loader, "_accessor", None) is None or type(getattr(loader, "sampler", None)) is SequentialSampler:
        return
    raise OptionError.at_caller(
        "P002",
        message="the loader draws its order in a process of its own, which a checkpoint does not see",
        notes="it loads ahead (`DataLoaderMode.Async`) and shuffles",
        help=(
            "leave `mode` out, with `num_workers` to load ahead",
            "or shuffle by `porting.partition(dataset, shuffle=True)` and its `set_epoch`",
        ),
    )
