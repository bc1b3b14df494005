"""Train and eval modes of a port's modules: noted, set for a while, and given back."""

from __future__ import annotations

from typing import Any, ContextManager, Dict, List, Mapping

from torch import nn

from .. import module_attributes
from ..adapters import notify
from ..diagnostics import Finding, caller_place
from ..module_attributes import train_modes_kept
from .parts import Parts

__all__ = ["eval_modes", "kept_modes", "modes_of", "say_it_is_compiled_in"]


def modes_of(parts: Parts) -> List[bool]:
    """List for each module of the user's model whether it is in train mode."""
    return [module.training for module in parts.model.modules()]


def kept_modes(parts: Parts) -> ContextManager[None]:
    """Give every module the mode back that it has now."""
    return train_modes_kept(_modules(parts))


def eval_modes(parts: Parts) -> ContextManager[None]:
    """Put all modules into eval mode for the duration of the context."""
    return module_attributes.eval_modes(_modules(parts))


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
