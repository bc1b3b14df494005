"""The rules of `porting check`: each goes through the facts of a program and finds one kind of place."""

from __future__ import annotations

from typing import Callable, Iterator, Tuple

from porting.diagnostics import Finding
from porting.source.rules import (
    annealed,
    batches,
    devices,
    executors,
    forward,
    loaders,
    optimizers,
    settings,
    steps,
    weights,
    written_files,
)
from porting.source.rules.reading import Reading

__all__ = ["RULES", "Reading", "Rule"]

Rule = Callable[[Reading], Iterator[Finding]]

_THEMES = (
    *(steps, weights, optimizers, loaders, batches, forward, annealed, devices, executors, settings, written_files),
)

RULES: Tuple[Rule, ...] = tuple(getattr(theme, name) for theme in _THEMES for name in theme.__all__)
"""All rules, theme by theme."""
