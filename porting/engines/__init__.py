"""Ways to run a `StepGraph` on this machine: a table of names, each loaded when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Any, Mapping

from ..diagnostics import OptionError

__all__ = ["ENGINES", "load_engine"]

ENGINES: Mapping[str, str] = MappingProxyType({"replay": "porting.engines.replay:ReplayExecutable"})


def load_engine(name: str) -> Any:
    """Return the executable class of the engine called `name`; "auto" is the fastest that is known to be equal.

    Raises OptionError P004 for a name that no engine has.

    >>> load_engine("auto").__name__
    'ReplayExecutable'
    """
    if name == "auto":
        name = "replay"
    if name not in ENGINES:
        raise OptionError.of(
            "P004",
            message=f"there is no engine called `{name}`",
            help=f"use one of: auto, {', '.join(sorted(ENGINES))}",
        )
    module, _, attribute = ENGINES[name].partition(":")
    return getattr(import_module(module), attribute)
