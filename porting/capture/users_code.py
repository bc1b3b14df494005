"""Tells whether a `forward` runs a line of the user's: torch's own layers decide nothing in Python by themselves."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable

from torch import nn

from ..torch_insides.modes import count_function_modes
from ..torch_insides.modules import EVERY_FORWARD_HOOK, EVERY_FORWARD_PRE_HOOK

__all__ = ["may_run_users_code"]

_LIBRARIES = ("torch", "porting")
# what nobody calls, and the registries of a module, whose content is looked at by itself
_PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict, set, type(None))


def may_run_users_code(modules: Iterable[nn.Module], functions: Iterable[Callable[..., Any]]) -> bool:
    """Tell whether a `forward` of `modules` that calls `functions` may run Python code that is not torch's own.

    It is only ruled out for modules of torch's classes as they are, without hooks or functions of others in them.

    >>> may_run_users_code(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).modules(), [nn.functional.cross_entropy])
    False
    >>> may_run_users_code([nn.Linear(2, 2)], [sorted])
    True
    """
    if EVERY_FORWARD_HOOK or EVERY_FORWARD_PRE_HOOK or count_function_modes():
        return True
    return not (all(map(_is_of_library, functions)) and all(map(_is_plain_layer, modules)))


def _is_of_library(value: object) -> bool:
    """Tell whether a function, or the class of anything else, is written in torch or this package."""
    if isinstance(value, nn.Module):
        return _is_plain_layer(value)
    if isinstance(value, functools.partial):
        given = (value.func, *value.args, *value.keywords.values())
        return all(map(_is_of_library, (item for item in given if not isinstance(item, _PLAIN))))
    return str(getattr(value, "__module__", None)).partition(".")[0] in _LIBRARIES


def _is_plain_layer(module: nn.Module) -> bool:
    kind, attributes = type(module), vars(module)
    is_torchs = kind.__module__.startswith("torch.nn.") and _is_of_library(kind.forward)
    has_hooks = attributes.get("_forward_hooks") or attributes.get("_forward_pre_hooks")
    # a setting may be a function, as the activation of a transformer's layer
    settings = (value for value in attributes.values() if not isinstance(value, _PLAIN))
    return is_torchs and "forward" not in attributes and not has_hooks and all(map(_is_of_library, settings))
