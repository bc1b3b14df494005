"""Stand in for `examples_utils`, the helpers of the vendor's examples: loading operators, versions, commands."""

from __future__ import annotations

from ..._version import VERSION
from .. import refuse_unknown_names
from . import load_lib_utils
from .load_lib_utils import load_lib, load_lib_all

__all__ = ["init", "load_lib", "load_lib_all", "load_lib_utils", "sdk_version_hash"]


def init(*_args: object, **_kwargs: object) -> None:
    """Do nothing: there is no SDK to prepare."""


def sdk_version_hash() -> str:
    """Return the simulator's version instead of the SDK's."""
    return VERSION


__getattr__ = refuse_unknown_names("examples_utils")
