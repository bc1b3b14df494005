"""Watch a training program from outside: what it calls of torch goes through a watcher.

The program stays as it is.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Any, Callable, Iterable, Protocol, Union

import torch
from torch import nn

from porting.torch_insides.exchanged import exchange

__all__ = ["ProgramWatcher", "Run", "Tensors", "watch_calls", "watch_program"]

Run = Callable[..., Any]
"""The function itself, which a watcher calls with the arguments that come after it."""

Tensors = Union[torch.Tensor, Iterable[torch.Tensor]]


class ProgramWatcher(Protocol):
    """What runs the parts of each step of a program: models, backward passes, clipping, and updates."""

    def call_module(self, run: Run, module: nn.Module, *args: object, **kwargs: object) -> Any:
        """Run a module, inside of others as well."""

    def run_backward(self, run: Run, tensors: Tensors, *args: object, **kwargs: object) -> Any:
        """Run a backward pass."""

    def clip_gradients(self, run: Run, parameters: Tensors, max_norm: float, *args: object, **kwargs: object) -> Any:
        """Clip the norm of gradients."""

    def make_step(self, run: Run, optimizer: torch.optim.Optimizer, *args: object, **kwargs: object) -> Any:
        """Make the step of an optimizer."""


def watch_program(watcher: ProgramWatcher) -> None:
    """Let `watcher` run all that trains in this process from now on."""
    watch_calls(nn.Module, "__call__", watcher.call_module)
    watch_calls(torch.autograd, "backward", watcher.run_backward)
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        watch_calls(module, "clip_grad_norm_", watcher.clip_gradients)

    def wrap_steps(own: Any) -> Any:
        return staticmethod(lambda function: _wrap(watcher.make_step, own.__func__(function)))

    # not a hook of all optimizers, of which a port warns
    exchange(torch.optim.Optimizer, "profile_hook_step", wrap_steps)


def watch_calls(owner: object, name: str, around: Callable[..., Any]) -> None:
    """Have `around` called in the place of a function of a class or module: with the function, and its arguments."""
    exchange(owner, name, partial(_wrap, around))


def _wrap(around: Callable[..., Any], own: Run) -> Run:
    return functools.wraps(own)(lambda *args, **kwargs: around(own, *args, **kwargs))
