"""The names that programs import, `poptorch` and its companions, as other names of this package's modules."""

from __future__ import annotations

from porting.aliases.finder import COMPANIONS, VENDOR, AliasFinder, install_aliases, stand_for

__all__ = ["COMPANIONS", "VENDOR", "AliasFinder", "install_aliases", "stand_for"]
