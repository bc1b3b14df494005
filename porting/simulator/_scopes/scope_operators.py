"""The operators of `torch.ops.poptorch` that begin and end scopes: while a model is traced they change its scopes."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from ...capture.device_operators import define_device_operator
from .graph_scopes import GraphScopes, open_scopes

__all__ = ["define_scope_operators"]

_MULTI_CONV_SETTINGS = {
    "available_memory_proportions": "availableMemoryProportions",
    "partials_types": "partialsTypes",
    "plan_type": "planType",
    "per_conv_reserved_tiles": "perConvReservedTiles",
    "cycle_back_off": "cycleBackOff",
    "enable_conv_dithering": "enableConvDithering",
}


def define_scope_operators() -> None:
    """Give the scope operators their effect on a trace; on the CPU they have none."""
    for name, change in _CHANGES.items():
        define_device_operator(getattr(torch.ops.poptorch, name).default, record=_recorded(change))


def _recorded(change: Callable[..., None]) -> Callable[..., None]:
    def record(_recorder: Any, *args: Any, **kwargs: Any) -> None:
        scopes = open_scopes()
        if scopes is not None:
            change(scopes, *args, **kwargs)

    return record


def _end_multi_conv(scopes: GraphScopes, *args: Any, **kwargs: Any) -> None:
    given = {**dict(zip(_MULTI_CONV_SETTINGS, args)), **kwargs}
    scopes.end_multi_conv({_MULTI_CONV_SETTINGS[name]: value for name, value in given.items() if value is not None})


_CHANGES: Dict[str, Callable[..., None]] = {
    "begin_ipu_block": GraphScopes.begin_block,
    "end_ipu_block": GraphScopes.end_block,
    "begin_multi_conv": GraphScopes.begin_multi_conv,
    "end_multi_conv": _end_multi_conv,
    "push_name_scope": GraphScopes.push_name_scope,
    "pop_name_scope": GraphScopes.pop_name_scope,
    "set_attribute": GraphScopes.set_attribute,
    "clear_attribute": GraphScopes.clear_attribute,
    # parameters belong to the groups of the optimizer, whatever a graph says of them
    "optimizer_group": lambda *_arguments: None,
}
