"""Random streams as plain values: those of the host, and those that a loader, its samplers and its datasets hold.

A state is a tensor or a text (JSON), so that a checkpoint can hold it and `torch.load(weights_only=True)` reads it.
"""

from __future__ import annotations

import json
import random
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy
import torch
import torch.utils.data

__all__ = ["find_host_streams", "find_streams", "read_states", "set_states"]

_ORDERING = (torch.utils.data.Dataset, torch.utils.data.Sampler, torch.utils.data.DataLoader)
# where loaders, datasets and samplers keep what they are made from, whatever its class
_INNER = ("sampler", "batch_sampler", "dataset", "datasets", "_dataset", "_batches", "collate_fn", "transform")
# the order of a dataset that PopTorch's loader divides among instances; the names are the vendor's and the simulator's
_SHARE_STATE = ("_shuffling_generator_state", "_offset", "_generator_state", "_shared_offset")


def find_host_streams() -> Dict[str, Any]:
    """Return the streams that every program on the host draws from: torch's, Python's and NumPy's.

    >>> sorted(find_host_streams())
    ['numpy', 'python', 'torch']
    """
    return {"torch": torch.default_generator, "python": random, "numpy": numpy.random}


def find_streams(loader: Any) -> Dict[str, Any]:
    """Find what decides the order of `loader` and what its samples draw from, by the path of attributes to it.

    These are generators of torch, Python and NumPy among the attributes of the loader, its samplers, datasets,
    transforms and `collate_fn`, and whatever counts epochs, with `epoch` and `set_epoch`.

    >>> generator = torch.Generator()
    >>> loader = torch.utils.data.DataLoader(range(4), shuffle=True, generator=generator)
    >>> find_streams(loader) == {"generator": generator}
    True
    """
    found: Dict[str, Any] = {}
    seen = {id(stream) for stream in find_host_streams().values()}
    waiting: List[Tuple[str, Any]] = [("", loader)]
    while waiting:
        path, value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if _is_generator(value) or _counts_epochs(value) or _is_divided(value):
            found[path or "loader"] = value
        waiting += [(f"{path}.{name}" if path else name, inner) for name, inner in _list_parts(value)]
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


def _is_generator(value: Any) -> bool:
    return isinstance(value, (torch.Generator, random.Random, numpy.random.Generator, numpy.random.RandomState))


def _counts_epochs(value: Any) -> bool:
    return isinstance(getattr(value, "epoch", None), int) and callable(getattr(value, "set_epoch", None))


def _is_divided(value: Any) -> bool:
    return callable(getattr(value, "swap_range", None))


def _list_parts(value: Any) -> Iterator[Tuple[str, Any]]:
    """List the attributes, and elements of lists in them, that may hold streams."""
    for name, inner in getattr(value, "__dict__", {}).items():
        elements = enumerate(inner) if isinstance(inner, (list, tuple)) and name in _INNER else [(None, inner)]
        for index, element in elements:
            if _is_generator(element) or isinstance(element, _ORDERING) or name in _INNER:
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
            _set_attribute(stream, name, value)
    elif stream.epoch != state:
        stream.set_epoch(state)


def _set_attribute(share: Any, name: str, value: Any) -> None:
    """Set an attribute; a number in memory that loading processes share is written there."""
    present = getattr(share, name)
    if isinstance(present, torch.Tensor) and isinstance(value, torch.Tensor) and present.is_shared():
        present.copy_(value)
    else:
        setattr(share, name, value)


def _pack_array(value: Any) -> Dict[str, Any]:
    return {"array": value.tolist(), "dtype": str(value.dtype)}


def _unpack_array(packed: Dict[str, Any]) -> Any:
    return numpy.array(packed["array"], dtype=packed["dtype"]) if packed.keys() == {"array", "dtype"} else packed
