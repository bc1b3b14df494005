"""The answer to `torch.jit.is_tracing()` while a device traces: libraries ask before they look at values."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any, Iterator

import torch

__all__ = ["tracing_announced"]


_UNTOLD = ("torch.", "transformers.models.")


@contextmanager
def tracing_announced() -> Iterator[None]:
    """Let `torch.jit.is_tracing()` be True for everybody but torch while the context lasts.

    Libraries choose a shorter way where the values of a tensor allow it (transformers leaves out an attention mask
    without padding), and take the general one when they are told that a graph is made, in which there are no values.
    Torch's own code gets the answer that it always gets: no TorchScript is recorded. So do the models of transformers,
    which would take sizes for tensors.

    >>> with tracing_announced():
    ...     torch.jit.is_tracing()
    True
    >>> torch.jit.is_tracing()
    False
    """
    jit: Any = torch.jit
    original = jit.is_tracing

    def is_tracing() -> bool:
        asking = str(sys._getframe(1).f_globals.get("__name__", ""))
        return bool(original()) if f"{asking}.".startswith(_UNTOLD) else True

    jit.is_tracing = is_tracing
    try:
        yield
    finally:
        jit.is_tracing = original
