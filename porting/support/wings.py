"""Find wings by name: packages of `porting` that the core neither imports nor needs, such as models.

The command line and the program loader use it, so that a core without a wing still works.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Optional

__all__ = ["find_wing"]


def find_wing(name: str) -> Optional[ModuleType]:
    """Import a module by its full name, as "porting.verify.command"; return None if its package is not installed.

    >>> find_wing("porting.no_such_wing.command") is None
    True
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None
