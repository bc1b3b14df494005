"""List the releases of PopTorch that ports are tested with, and what the older one does differently."""

from __future__ import annotations

from types import MappingProxyType
from typing import Mapping

from porting.support.versions import read_version

__all__ = ["TESTED_RELEASES", "loses_freezing", "name_release"]

TESTED_RELEASES: Mapping[str, str] = MappingProxyType(
    {"3.3": "a frozen parameter of which each group of replicas has its own value is trained", "3.4": ""}
)
"""What each release does otherwise than the newest, whose Python half it shares but for one statement."""


def name_release(version: str) -> str:
    """Return the release that a version of PopTorch is of.

    >>> name_release("3.3.0+113432_960e9c294b_ubuntu_20_04")
    '3.3'
    """
    return ".".join(map(str, read_version(version)[:2]))


def loses_freezing(version: str) -> bool:
    """Tell whether parameters become trainable that have a value for each group of replicas.

    PopTorch 3.3 makes another parameter of them while it compiles, without their `requires_grad`.

    >>> loses_freezing("3.3.0"), loses_freezing("3.4.0")
    (True, False)
    """
    return read_version(version) < (3, 4)
