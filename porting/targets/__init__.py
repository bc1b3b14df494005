"""Accelerators as data: what a planner has to know of them, each number with its source."""

from __future__ import annotations

from .ipus import DEFAULT, TARGETS, Target, find_target

__all__ = ["DEFAULT", "TARGETS", "Target", "find_target"]
