"""Loops that read a buffer after an operator has changed it in place wait for that operator.

Inductor gives a buffer that is changed in place another name, and what reads it afterwards waits for that name. Where
it works out a loop anew, to join it with another, it forgets the new names. So Dropout's mask could be read while it
was still empty: whether that happened hung on which loops had been joined. Here the names are given again.

Without this a program may be wrong, so that a torch without the function is refused.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator

from .....torch_insides.exchanged import exchanged
from .....torch_insides.inductor import RENAMES, SchedulerNode

__all__ = ["renamed_loops"]


@contextmanager
def renamed_loops() -> Iterator[None]:
    """Keep the names while the context lasts; MissingPart for a torch without the function."""
    RENAMES.require()
    with exchanged(SchedulerNode, "recompute_size_and_body", _rename_reads):
        yield


def _rename_reads(original: Callable[..., None]) -> Callable[..., None]:
    def recompute_size_and_body(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.set_read_writes(self.read_writes.rename(self.mutation_renames))

    return recompute_size_and_body
