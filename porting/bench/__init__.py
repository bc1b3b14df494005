"""Measuring one thing against another on a machine that does other things as well."""

from __future__ import annotations

from .interleaved import Interval, Timing, ratio, time_interleaved

__all__ = ["Interval", "Timing", "ratio", "time_interleaved"]
