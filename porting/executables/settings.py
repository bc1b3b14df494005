"""Read from arguments and the environment where executables are kept and how much room they may take."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Optional, Union

from ..diagnostics import OptionError

__all__ = ["DEFAULT_MAX_BYTES", "PROGRAMS", "find_cache_folder", "format_bytes", "parse_bytes", "read_max_cache_bytes"]

PROGRAMS = "programs"
"""The folder of executables inside a cache folder, which may hold other files as well."""

DEFAULT_MAX_BYTES = 2 << 30

_FOLDER_VARIABLE = "PORTING_CACHE_DIR"
_LIMIT_VARIABLE = "PORTING_CACHE_MAX_BYTES"
_UNITS = "kmgt"


def find_cache_folder(given: Union[str, os.PathLike[str], None] = None) -> Path:
    """Return the cache folder: the one given, else the one of PORTING_CACHE_DIR, else `porting` in the user's caches.

    These are in XDG_CACHE_HOME, which an absolute path sets, or else in `~/.cache`.

    >>> find_cache_folder("somewhere").name
    'somewhere'
    """
    caches = os.environ.get("XDG_CACHE_HOME", "")
    usual = Path(caches if os.path.isabs(caches) else "~/.cache", "porting")
    wanted = given if given is not None else os.environ.get(_FOLDER_VARIABLE) or usual
    return Path(os.path.expanduser(os.fspath(wanted)))


def read_max_cache_bytes() -> int:
    """Return how many bytes all executables of a folder may take: PORTING_CACHE_MAX_BYTES, else 2 GiB.

    Raises OptionError P005 for a value that is no size.
    """
    text = os.environ.get(_LIMIT_VARIABLE, "").strip()
    if not text:
        return DEFAULT_MAX_BYTES
    found = parse_bytes(text)
    if found is None:
        raise OptionError.of(
            "P005",
            message=f"the environment variable {_LIMIT_VARIABLE} is {text!r}",
            help="set it to a number of bytes, such as 500000000, 500M or 2G, or unset it",
        )
    return found


def parse_bytes(text: str) -> Optional[int]:
    """Read a number of bytes, with k, M, G or T for powers of 1024; None for anything else.

    >>> parse_bytes("2G"), parse_bytes("1.5 KiB"), parse_bytes("10"), parse_bytes("much")
    (2147483648, 1536, 10, None)
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*(?:([kmgt])i?)?b?", text.strip().lower())
    if match is None:
        return None
    power = _UNITS.index(match[2]) + 1 if match[2] else 0
    return int(float(match[1]) * 1024**power) if "." in match[1] else int(match[1]) * 1024**power


def format_bytes(num_bytes: int) -> str:
    """Write a number of bytes for people.

    >>> format_bytes(512), format_bytes(1536), format_bytes(2 << 30)
    ('512 B', '1.5 KiB', '2.0 GiB')
    """
    if num_bytes < 1024:
        return f"{num_bytes} B"
    value, unit = float(num_bytes), ""
    for letter in _UNITS:
        value, unit = value / 1024, letter
        if value < 1023.95:
            break
    return f"{value:.1f} {unit.upper()}iB"
