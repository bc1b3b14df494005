"""List the operators that are computed by others: those of this package, and a program's own (`porting.op`).

`Remedies` asks their substitutes while a model is traced.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import Any, Callable, Dict, List, Sequence, Tuple

from torch import nn

from porting.diagnostics import OptionError
from porting.remedies.entries import OperatorSubstitute, Target

__all__ = ["list_substitutes", "load_built_in", "name_target", "op", "order_substitutes"]

# Modules with built-in substitutes, which say of themselves in `SUBSTITUTES` what they have.
_BUILT_IN = (
    "recurrent triangles elementwise rearranged padded sampled accumulated averaged distances counted quantiles "
    "masked_rows"
).split()

_registered: Dict[Any, List[OperatorSubstitute]] = {}


def op(*targets: Target, host: bool = False, name: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what a device computes instead of an operator that it lacks: a decorator, which returns its function.

    `targets` are functions and methods of torch (`torch.xlogy`, `torch.Tensor.xlogy`), a class of modules, or
    "module:Class.method" of a library. The function takes the arguments of the target (of a module, the module first)
    and returns what the target would, computed by operators that the device has; or `porting.Fallback` for arguments
    that it has no answer to. What was registered last is asked first, and the target itself is what remains.

    With `host=True` the function runs on the host, in the middle of the device's step: the device waits, its
    arguments go to the host and its result comes back. That has no gradient, so it is for inference alone. It is asked
    after all others. Each use is reported with the bytes that it moves (C024), and `PortOptions(strict=True)`
    refuses it.

    Both count in what a port compiles, on the simulator and on IPUs; plain calls of the target stay as they are.
    Raises OptionError P002 for a target that cannot be substituted.

    >>> import torch
    >>> @op(torch.special.entr)
    ... def entropy_terms(x):
    ...     return torch.where(x > 0, -x * torch.log(torch.where(x > 0, x, torch.ones_like(x))), torch.zeros_like(x))
    """
    for target in targets:
        _check_target(target)
    if not targets:
        raise OptionError.at_caller(
            "P002", message="`porting.op` has no target", help="as in `@porting.op(torch.xlogy)`"
        )

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        for target in targets:
            entry = OperatorSubstitute(name or name_target(target), target, compute, on_host=host)
            _registered.setdefault(target, []).insert(0, entry)
        return compute

    return register


def name_target(target: Target) -> str:
    """Say what a target is called: `torch.xlogy`, `torch.Tensor.xlogy`, `nn.LSTM` or "module:Class.method"."""
    if isinstance(target, str):
        return target
    if isinstance(target, type):
        return f"{target.__module__}.{target.__qualname__}"
    owner = getattr(target, "__objclass__", None)
    if owner is not None:
        return f"torch.Tensor.{target.__name__}"
    name = str(getattr(target, "__name__", target))
    return f"torch.linalg.{name[7:]}" if name.startswith("linalg_") else f"torch.{name}"


def _check_target(target: Target) -> None:
    is_path = isinstance(target, str) and ":" in target and all(target.split(":"))
    is_class = isinstance(target, type) and issubclass(target, nn.Module) and target is not nn.Module
    is_torchs = callable(target) and not isinstance(target, type) and _is_of_torch(target)
    if not (is_path or is_class or is_torchs):
        raise OptionError.at_caller(
            "P002",
            message=f"`porting.op` cannot substitute {target!r:.60}",
            help="pass a function of torch, a class of modules, or 'module:Class.method'",
        )


def _is_of_torch(function: object) -> bool:
    """Tell whether torch tells function modes of a function: those written in C++, and those of its own modules."""
    if isinstance(function, FunctionType):
        return function.__module__.partition(".")[0] == "torch"
    return hasattr(function, "__name__")


def load_built_in() -> None:
    """Register the substitutes of this package, once."""
    if _loaded:
        return
    _loaded.append(True)
    for module in _BUILT_IN:
        for entry in importlib.import_module(f"porting.remedies.{module}").SUBSTITUTES:
            # what a program has registered before comes first
            _registered.setdefault(entry.target, []).append(entry)


_loaded: List[bool] = []


def list_substitutes() -> Tuple[OperatorSubstitute, ...]:
    """List all substitutes, a target's in the order in which they are asked."""
    load_built_in()
    return tuple(entry for entries in _registered.values() for entry in entries)


def order_substitutes(target: Target) -> Sequence[OperatorSubstitute]:
    """List the substitutes of one target in the order in which they are asked: those on the host come last."""
    load_built_in()
    found = _registered.get(target, ())
    return sorted(found, key=lambda entry: entry.on_host)
