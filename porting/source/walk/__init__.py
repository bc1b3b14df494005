"""The walk through a program: an abstract interpretation of its source, which makes facts and runs nothing."""

from __future__ import annotations

from porting.source.walk.program import collect_facts

__all__ = ["collect_facts"]
