"""Watch which attributes of modules a capture reads; what is compiled in is compared with them later."""

from __future__ import annotations

import functools
import threading
from collections import deque
from contextlib import contextmanager
from typing import Any, Callable, Dict, FrozenSet, Iterator, NamedTuple, Sequence, Tuple

import torch
from torch import nn

from ..torch_insides.exchanged import exchanged

__all__ = ["Read", "Reads", "is_plain", "is_same", "note_reads"]


_CONTAINERS = (list, dict, set, deque)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_MOST_ITEMS = 64


def is_plain(value: Any) -> bool:
    """Tell whether a value is a number, a text or the like, or a short tuple of them.

    >>> is_plain(0.5), is_plain((1, 2)), is_plain([1, 2])
    (True, True, False)
    """
    if isinstance(value, _PLAIN):
        return True
    return type(value) is tuple and len(value) <= _MOST_ITEMS and all(isinstance(item, _PLAIN) for item in value)


def is_same(before: Any, now: Any) -> bool:
    """Tell whether a value is the one that it was: the same object, or an equal one where that can be told."""
    if before is now or isinstance(before, torch.Tensor) or isinstance(now, torch.Tensor):
        return before is now
    try:
        return bool(before == now)
    except Exception:  # arrays have no truth value, and a user's own class may raise anything
        return False


class Read(NamedTuple):
    """What an attribute was when it was read first, and what was in it."""

    value: Any
    content: Any

    @classmethod
    def of(cls, value: Any) -> Read:
        """Keep a value and, of a small container, its items."""
        is_small = type(value) in _CONTAINERS and len(value) <= _MOST_ITEMS
        return cls(value, value.copy() if is_small else None)

    def has_changed(self) -> bool:
        """Tell whether a container has other items now."""
        return self.content is not None and not is_same(self.content, self.value)


Reads = Dict[int, Dict[str, Read]]
"""The attributes that were read, by the identity of their module and their name."""


@contextmanager
def note_reads(modules: Sequence[Tuple[str, nn.Module]]) -> Iterator[Reads]:
    """Note which attributes of `modules` this thread reads while the context lasts, of the instance or its class."""
    noted: Reads = {id(module): {} for _prefix, module in modules}
    of_torch, thread = _list_names_of_torch(), threading.get_ident()

    def make(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def note(module: nn.Module, name: str) -> Any:
            value = read(module, name)
            if name not in of_torch:
                names = noted.get(id(module))
                if names is not None and name not in names and threading.get_ident() == thread:
                    names[name] = Read.of(value)
            return value

        return note

    with exchanged(nn.Module, "__getattribute__", make):
        yield noted


@functools.lru_cache(maxsize=None)
def _list_names_of_torch() -> FrozenSet[str]:
    """List the attributes that every module has."""
    return frozenset([*dir(nn.Module), *vars(nn.Module())])
