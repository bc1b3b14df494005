"""Stand in for `examples_utils.load_lib_utils.load_lib_utils`, a second name of the same functions."""

from __future__ import annotations

from ... import refuse_unknown_names
from . import load_lib, load_lib_all

__all__ = ["load_lib", "load_lib_all"]

__getattr__ = refuse_unknown_names("examples_utils.load_lib_utils.load_lib_utils")
