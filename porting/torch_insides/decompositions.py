"""Name torch's table of what operators are made of; whatever rounds a computation at random uses it."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from .parts import Parts

__all__ = ["PARTS", "decomposition_table", "probe"]

PARTS = Parts("bands of rounding are narrower for means and variances")
probe = PARTS.probe

decomposition_table: Mapping[Any, Callable[..., Any]] = PARTS.find("torch._decomp:decomposition_table", instead={})
"""Functions by the operator that they compute."""
