"""A port that differs before the first step: other weights or buffers, modules that are missing or others."""

from __future__ import annotations

from typing import Any, Optional

from torch import nn

from porting.verify.certificate import Location, Measured
from porting.verify.fault_location.reproduction import reproduce_start
from porting.verify.fault_location.setting_differences import compare_modules
from porting.verify.plain_training import PlainTraining

__all__ = ["locate_start"]


def locate_start(plain: PlainTraining, ported: Any, first: Measured) -> Location:
    """Return what the port's model has of its own at the start: a tensor of another value, or that one side lacks."""
    path = first.name.rpartition(".")[0]
    sides = [dict(model.state_dict()) for model in (plain.model, ported.model)]
    tied = _find_tied(first.name, plain.model)
    if tied is not None and _find_tied(first.name, ported.model) is None:
        words = f"`{first.name}` is tied to `{tied}` in plain PyTorch, and a parameter of its own in the port"
    elif all(first.name in state for state in sides):
        words = f"`{first.name}` has another value in the port before the first step: it is no copy of plain PyTorch's"
    else:
        side = "plain PyTorch" if first.name in sides[0] else "the port"
        words = f"only {side} has `{first.name}`"
    settings = [str(item) for item in compare_modules(plain.model, ported.model) if item.owner == path]
    words = "; ".join([words, *settings[:4], *([first.note] if first.note else [])])
    phase = "buffer" if first.kind == "buffer" else "forward"
    reproduction = reproduce_start(first.name, plain.model, ported.model)
    module = path or type(plain.model).__name__
    return Location(phase, first.step, module, first.name, cause=words, reproduction=reproduction)


def _find_tied(name: str, model: nn.Module) -> Optional[str]:
    """Return another name of the same parameter."""
    named = dict(model.named_parameters(remove_duplicate=False))
    return next((other for other, value in named.items() if other != name and value is named.get(name)), None)
