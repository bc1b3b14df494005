"""Describe to `importlib.metadata` a module whose name an alias took: a distribution with a version, and no files."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from pathlib import Path
from typing import Optional, Union

__all__ = ["AliasedDistribution"]


class AliasedDistribution(importlib.metadata.Distribution):
    """A distribution called `name` with the version of `module`, in the standard's spelling.

    >>> AliasedDistribution("pytorch", "torch").version.split(".")[0] >= "2"
    True
    """

    def __init__(self, name: str, module: str) -> None:
        self._called = name
        self._module = module

    def read_text(self, filename: str) -> Optional[str]:
        """Return the text of METADATA; there is no other file."""
        if filename != "METADATA":
            return None
        # a hyphen is no part of a standard version
        release, _hyphen, variant = str(importlib.import_module(self._module).__version__).partition("-")
        version = f"{release}+{variant}" if variant else release
        return f"Metadata-Version: 2.1\nName: {self._called}\nVersion: {version}\n"

    def locate_file(self, path: Union[str, os.PathLike[str]]) -> Path:
        """Return the path that a file of the distribution would have."""
        return Path(__file__).parent / path
