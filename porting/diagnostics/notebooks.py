"""Name cells of a running notebook, whose code stands in files with names that tell a reader nothing."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["name_cell"]


def name_cell(file: str) -> str:
    """Name the cell whose code is in `file`, as the notebook itself does: "cell In[3]"; empty for any other file.

    >>> name_cell("train.py")
    ''
    """
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # which IPython before its version 8 does not have
    format_name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _file: None)
    named = format_name(file)
    return f"cell {named[1]}" if named else ""
