"""Train and eval modes of a port's modules: noted, set for a while, and given back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping

from torch import nn

from ..diagnostics import Finding, caller_place, notify
from .parts import Parts

__all__ = ["eval_modes", "kept_modes", "modes_of", "say_it_is_compiled_in"]


def modes_of(parts: Parts) -> List[bool]:
    """List for each module of the user's model whether it is in train mode."""
    return [module.training for module in parts.model.modules()]


@contextmanager
def kept_modes(parts: Parts) -> Iterator[None]:
    """Give every module the mode back that it has now."""
    modes = [(module, module.training) for module in _modules(parts)]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def eval_modes(parts: Parts) -> Iterator[None]:
    """Put all modules into eval mode for the duration of the context.

    The flags are set directly: a user's own `train()` may do more than switch a mode.
    """
    with kept_modes(parts):
        for module in _modules(parts):
            module.training = False
        yield


def say_it_is_compiled_in(what: str) -> None:
    """Warn (D005) of a change that the executable does not follow."""
    notify(
        Finding(
            "D005",
            message=f"{what}, which goes on as before",
            place=caller_place(),
            help="call `ported.destroy()`: the next call compiles the step as the model is then",
        )
    )


def _modules(parts: Parts) -> List[nn.Module]:
    """List the model, the module around it and the losses, which may have parts in common."""
    losses = parts.loss.values() if isinstance(parts.loss, Mapping) else [parts.loss]
    roots: List[Any] = [parts.model, parts.wrapped]
    roots += [getattr(loss, "function", loss) for loss in losses]
    found: Dict[int, nn.Module] = {}
    for root in roots:
        if isinstance(root, nn.Module):
            found.update((id(module), module) for module in root.modules())
    return list(found.values())
