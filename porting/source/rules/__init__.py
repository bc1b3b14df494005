"""This package holds the rules of `porting check`.

Each goes through the facts of a program and finds one kind of place.
"""

from __future__ import annotations

from typing import Tuple

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
    trainers,
    weights,
    written_files,
)
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Rule, apply_rule

__all__ = ["RULES", "Reading", "Rule", "apply_rule"]

_THEMES = (
    *(steps, weights, optimizers, loaders, batches, forward, annealed, devices, trainers, executors, settings),
    written_files,
)

_FOUND = [getattr(theme, name) for theme in _THEMES for name in theme.__all__]

RULES: Tuple[Rule, ...] = tuple(found if isinstance(found, Rule) else Rule(found) for found in _FOUND)
"""All rules, theme by theme; a search that says nothing of its scope judges all programs."""
