"""Name the version of this package, for modules that must not load the rest of it."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"
