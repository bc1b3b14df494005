"""Loops that read a buffer after an operator has changed it in place wait for that operator.

Inductor gives a buffer that is changed in place another name, and what reads it afterwards waits for that name. Where
it works out a loop anew, to join it with another, it forgets the new names. So Dropout's mask could be read while it
was still empty: whether that happened hung on which loops had been joined. Here the names are given again.

This changes a function of Inductor in the process that compiles, which does nothing else. A torch whose functions look
different is refused: `install_loop_renames` raises.
"""

from __future__ import annotations

from typing import Any, Callable

from torch._inductor.scheduler import SchedulerNode

from .inductor_changes import wrap_function

__all__ = ["install_loop_renames"]


def install_loop_renames() -> None:
    """Keep the names from now on; RuntimeError for a torch where this is not known to work."""
    wrap_function(SchedulerNode, "recompute_size_and_body", _rename_reads)


def _rename_reads(original: Callable[..., None]) -> Callable[..., None]:
    def recompute_size_and_body(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.set_read_writes(self.read_writes.rename(self.mutation_renames))

    return recompute_size_and_body
