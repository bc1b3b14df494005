"""Describe accelerators as data, each number with its source: Graphcore's IPUs, their tiles and the memory of each.

A tile has a processor and memory of its own. All that a program needs must lie in the memory of the tiles, and data
that exceed one tile do not fit.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Mapping, Tuple

from .diagnostics import OptionError

__all__ = ["DEFAULT", "TARGETS", "Target", "find_target"]

_KIB = 1024


@dataclass(frozen=True)
class Target:
    """One accelerator: `tile_bytes` of memory on each of `num_tiles`, and the sources of these numbers.

    >>> TARGETS["gc200"].memory_bytes
    940572672
    """

    name: str
    description: str
    num_tiles: int
    tile_bytes: int
    sources: Tuple[str, ...]

    @property
    def memory_bytes(self) -> int:
        """The memory of all tiles."""
        return self.num_tiles * self.tile_bytes


_GC2 = Target(
    name="gc2",
    description="IPU of the first generation (GC2, C2 card)",
    num_tiles=1216,
    tile_bytes=256 * _KIB,
    sources=(
        "1216 tiles: graphcore/poptorch, poptorch/popart_compiler/source/Utils.cpp",
        "256 KiB for each: graphcore/examples, mixed_precision/static/MemoryDiffReport.png",
    ),
)
_GC200 = Target(
    name="gc200",
    description="IPU of the second generation (GC200, IPU-M2000)",
    num_tiles=1472,
    tile_bytes=624 * _KIB,
    sources=(
        "1472 tiles: graphcore/poptorch, poptorch/popart_compiler/source/Utils.cpp",
        "624 KiB for each: graphcore/popliner, popliner/parse_args.py, default of --mem-per-tile",
        "897 MiB together is what the vendor's profiles show, and 900 MB in its data sheets",
    ),
)
_BOW = replace(
    _GC200,
    name="bow",
    description="Bow IPU (Bow-2000): the memory of a GC200, a faster clock",
    sources=(*_GC200.sources, "3.6 GB in a machine of 4 IPUs: data sheet of the Bow-2000"),
)

TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in (_GC2, _GC200, _BOW)})
"""The accelerators by name."""

DEFAULT = "bow"
"""The one that is meant where none is named."""


def find_target(name: str) -> Target:
    """Return the target of this name, in any case; raise OptionError P002 with the known ones for another."""
    known = name.strip().lower() if isinstance(name, str) else name
    if known in TARGETS:
        return TARGETS[known]
    near = difflib.get_close_matches(str(known), list(TARGETS), n=1)
    raise OptionError.at_caller(
        "P002",
        message=f"there is no target called {name!r}",
        help=f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(TARGETS)}",
    )
