"""Watch which attributes of modules a capture reads, since what is read is compiled in.

`CompiledIn` compares them in later calls.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from contextlib import contextmanager
from typing import Any, Callable, Dict, FrozenSet, Iterator, NamedTuple, Sequence, Tuple

from torch import nn

from ..reached_values import is_same
from ..torch_insides.exchanged import exchanged

__all__ = ["Read", "Reads", "note_reads"]


_CONTAINERS = (list, dict, set, deque)
_MOST_ITEMS = 64


class Read(NamedTuple):
    """What an attribute was when it was read first, and what was in it."""

    value: Any
    content: Any
    is_missing: bool = False

    @classmethod
    def of(cls, value: Any) -> Read:
        """Keep a value and, of a small container, its items."""
        is_small = type(value) in _CONTAINERS and len(value) <= _MOST_ITEMS
        return cls(value, value.copy() if is_small else None)

    def iter_changes(self) -> Iterator[Tuple[int, Any]]:
        """Yield the identities, as reached values, of a container that has other items now and of its new entries."""
        if self.content is not None and not is_same(self.content, self.value):
            yield id(self.value), None
            for key in self.value if isinstance(self.value, dict) else ():
                if key not in self.content or not is_same(self.content[key], self.value[key]):
                    yield id(self.value), key


Reads = Dict[int, Dict[str, Read]]
"""The attributes that were read, by the identity of their module and their name."""


@contextmanager
def note_reads(modules: Sequence[Tuple[str, nn.Module]]) -> Iterator[Reads]:
    """Note which attributes of `modules` this thread reads while the context lasts, of the instance or its class."""
    noted: Reads = {id(module): {} for _prefix, module in modules}
    of_torch, thread = _collect_names_of_torch(), threading.get_ident()

    def make(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def note(module: nn.Module, name: str) -> Any:
            try:
                value = read(module, name)
            except AttributeError:
                if id(module) in noted and name not in of_torch and threading.get_ident() == thread:
                    noted[id(module)].setdefault(name, Read(None, None, is_missing=True))
                raise
            if name not in of_torch:
                names = noted.get(id(module))
                if names is not None and name not in names and threading.get_ident() == thread:
                    names[name] = Read.of(value)
            return value

        return note

    with exchanged(nn.Module, "__getattribute__", make):
        yield noted


@functools.lru_cache(maxsize=None)
def _collect_names_of_torch() -> FrozenSet[str]:
    """Collect the attributes that every module has."""
    return frozenset([*dir(nn.Module), *vars(nn.Module())])
