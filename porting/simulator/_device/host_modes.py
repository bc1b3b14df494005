"""Modes of the host that a call is made in and that mean nothing to a device."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import ContextManager, Iterator

import torch

__all__ = ["on_device", "recordable"]

_NOTHING: ContextManager[None] = nullcontext()


def on_device() -> ContextManager[None]:
    """Return a context in which neither the host's inference mode nor its autocast has an effect on operators."""
    if not torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu"):
        return _NOTHING
    return _without_modes()


@contextmanager
def _without_modes() -> Iterator[None]:
    with ExitStack() as contexts:
        contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.autocast("cpu", enabled=False))
        yield


def recordable(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` in a form that gradients can be computed with; tensors made in inference mode are copied."""
    return tensor.clone() if tensor.is_inference() else tensor
