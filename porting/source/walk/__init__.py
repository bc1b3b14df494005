"""This package walks through a program, and runs nothing of it.

The walk is an abstract interpretation of the source, which makes the facts that rules read.
"""

from __future__ import annotations

from porting.source.walk.program import collect_facts

__all__ = ["collect_facts"]
