"""Hook all modules at once: a module's own hooks would show in its text, and be copied with it.

Captures, scopes and proofs use it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable

from torch.nn.modules import module as every_module

__all__ = ["follow_modules"]


def follow_modules(enter: Callable[[Any, Any], None], leave: Callable[[Any, Any, Any], None]) -> ExitStack:
    """Call `enter(module, args)` before each `forward` and `leave(module, args, result)` after it, until closed."""
    hooks = ExitStack()
    hooks.callback(every_module.register_module_forward_pre_hook(enter).remove)
    hooks.callback(every_module.register_module_forward_hook(leave).remove)
    return hooks
