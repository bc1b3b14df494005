"""Record where a training is in its epoch, as the states of the random streams that its order is drawn from.

Checkpoints, audits of samples and proofs go back there. A state is a tensor or a text (JSON), so that a checkpoint can
hold it and `torch.load(weights_only=True)` reads it.
"""

from __future__ import annotations

import json
import random
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy
import torch
import torch.utils.data

from porting.diagnostics import OptionError
from porting.torch_insides.loaders import find_order, find_running_iterator

__all__ = [
    "begin_epoch_again",
    "collect_host_streams",
    "collect_streams",
    "read_states",
    "read_streams",
    "refuse_unknown_order",
    "set_states",
    "set_streams",
]

_GENERATORS = (torch.Generator, random.Random, numpy.random.Generator, numpy.random.RandomState)
_ORDERING = (torch.utils.data.Dataset, torch.utils.data.Sampler, torch.utils.data.DataLoader)
# where loaders, datasets and samplers keep what they are made from, whatever its class
_INNER = ("sampler", "batch_sampler", "dataset", "datasets", "_dataset", "_batches", "collate_fn", "transform")
# the order of a dataset that PopTorch's loader divides among instances; the names are the vendor's and the simulator's
_SHARE_STATE = ("_shuffling_generator_state", "_offset", "_generator_state", "_shared_offset")


def read_streams(loader: object = None) -> Dict[str, Any]:
    """Return the states of the host's streams, and of those in `loader` when there is one, as plain values."""
    states: Dict[str, Any] = {"host": read_states(collect_host_streams())}
    if loader is not None:
        states["loader"] = read_states(collect_streams(loader))
        states["has_workers"] = find_running_iterator(loader) is not None
    return states


def set_streams(states: Mapping[str, Any], loader: object = None) -> List[str]:
    """Let the host's streams, and those in `loader`, go on from `states`; return the names of those that do not fit."""
    missing = set_states(collect_host_streams(), states["host"])
    if loader is not None and "loader" in states:
        missing += [f"loader.{name}" for name in set_states(collect_streams(loader), states["loader"])]
    return missing


def begin_epoch_again(
    loader: Iterable[Any], start: Mapping[str, Any], *, num_seen: int = 0, present: Optional[Mapping[str, Any]] = None
) -> Iterator[Any]:
    """Resume an epoch of `loader` after its first `num_seen` batches; `start` are the streams as the epoch began.

    Afterwards the streams are set to `present`, if that is given. Where this process reads the samples itself, those
    that were seen are not read again: only their order is drawn. Loading processes read them again, because
    what they draw meanwhile decides what the later samples draw.
    """
    if (
        start.get("has_workers")
        and getattr(loader, "persistent_workers", False)
        and find_running_iterator(loader) is None
    ):
        # the processes were there when the epoch began, and starting them draws a number
        iter(loader)
    set_streams(start, loader)
    batches = iter(loader)
    is_ordered = (
        isinstance(loader, torch.utils.data.DataLoader)
        and not loader.num_workers
        and not isinstance(loader.dataset, torch.utils.data.IterableDataset)
    )
    seen: Iterator[Any] = find_order(batches) if is_ordered else batches
    for _ in range(num_seen):
        next(seen, None)
    if present is not None:
        set_streams(present, loader)
    return batches


def refuse_unknown_order(loader: object) -> None:
    """Refuse (OptionError P002) a loader whose order is drawn in another process, where no checkpoint sees it."""
    if (
        getattr(loader, "_accessor", None) is None
        or type(getattr(loader, "sampler", None)) is torch.utils.data.SequentialSampler
    ):
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


def collect_host_streams() -> Dict[str, Any]:
    """Return the streams that every program on the host draws from: torch's, Python's and NumPy's.

    >>> sorted(collect_host_streams())
    ['numpy', 'python', 'torch']
    """
    return {"torch": torch.default_generator, "python": random, "numpy": numpy.random}


def collect_streams(loader: object) -> Dict[str, Any]:
    """Collect what decides the order of `loader` and what its samples draw from, by the path of attributes to it.

    These are generators of torch, Python and NumPy among the attributes of the loader, its samplers, datasets,
    transforms and `collate_fn`, and whatever counts epochs, with `epoch` and `set_epoch`.

    >>> generator = torch.Generator()
    >>> loader = torch.utils.data.DataLoader(range(4), shuffle=True, generator=generator)
    >>> collect_streams(loader) == {"generator": generator}
    True
    """
    found: Dict[str, Any] = {}
    seen = {id(stream) for stream in collect_host_streams().values()}
    waiting: List[Tuple[str, Any]] = [("", loader)]
    while waiting:
        path, value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        counts_epochs = isinstance(getattr(value, "epoch", None), int) and callable(getattr(value, "set_epoch", None))
        if isinstance(value, _GENERATORS) or counts_epochs or _is_divided(value):
            found[path or "loader"] = value
        waiting += [(f"{path}.{name}" if path else name, inner) for name, inner in _iter_parts(value)]
    return found


def read_states(streams: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the present state of each stream as a plain value."""
    return {name: _read_state(stream) for name, stream in streams.items()}


def set_states(streams: Mapping[str, Any], states: Mapping[str, Any]) -> List[str]:
    """Set each stream to its state in `states`; return the names that only one of the two has."""
    for name, stream in streams.items():
        if name in states:
            _set_state(stream, states[name])
    return sorted(streams.keys() ^ states.keys())


def _is_divided(value: object) -> bool:
    return callable(getattr(value, "swap_range", None))


def _iter_parts(value: object) -> Iterator[Tuple[str, Any]]:
    """List the attributes, and elements of lists in them, that may hold streams."""
    for name, inner in getattr(value, "__dict__", {}).items():
        elements = enumerate(inner) if isinstance(inner, (list, tuple)) and name in _INNER else [(None, inner)]
        for index, element in elements:
            if isinstance(element, (*_GENERATORS, *_ORDERING)) or name in _INNER:
                yield (name if index is None else f"{name}[{index}]"), element


def _read_state(stream: Any) -> Any:
    if isinstance(stream, torch.Generator):
        return stream.get_state()
    if isinstance(stream, random.Random) or stream is random:
        return json.dumps(stream.getstate())
    if isinstance(stream, numpy.random.Generator):
        return json.dumps(stream.bit_generator.state, default=_pack_array)
    if isinstance(stream, numpy.random.RandomState) or stream is numpy.random:
        return json.dumps(stream.get_state(legacy=False), default=_pack_array)
    if _is_divided(stream):
        state = {name: getattr(stream, name) for name in _SHARE_STATE if hasattr(stream, name)}
        return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()}
    return stream.epoch


def _set_state(stream: Any, state: Any) -> None:
    if isinstance(stream, torch.Generator):
        stream.set_state(state)
    elif isinstance(stream, random.Random) or stream is random:
        version, words, gauss = json.loads(state)
        stream.setstate((version, tuple(words), gauss))
    elif isinstance(stream, numpy.random.Generator):
        stream.bit_generator.state = json.loads(state, object_hook=_unpack_array)
    elif isinstance(stream, numpy.random.RandomState) or stream is numpy.random:
        stream.set_state(json.loads(state, object_hook=_unpack_array))
    elif _is_divided(stream):
        for name, value in state.items():
            present = getattr(stream, name)
            if isinstance(present, torch.Tensor) and isinstance(value, torch.Tensor) and present.is_shared():
                # in memory that loading processes share
                present.copy_(value)
            else:
                setattr(stream, name, value)
    elif stream.epoch != state:
        stream.set_epoch(state)


def _pack_array(value: numpy.ndarray) -> Dict[str, Any]:
    return {"array": value.tolist(), "dtype": str(value.dtype)}


def _unpack_array(packed: Dict[str, Any]) -> Any:
    return numpy.array(packed["array"], dtype=packed["dtype"]) if packed.keys() == {"array", "dtype"} else packed
