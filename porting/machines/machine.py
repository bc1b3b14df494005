"""This module reads descriptions of accelerators: files of JSON in this folder, or a user's own file of that form.

Every amount is text with its unit, as "624 KiB" or "320 GB/s", so that a wrong unit is refused instead of multiplied.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Mapping, Optional, Tuple

from porting.diagnostics import OptionError, suggest_name
from porting.support.plain_data import WrongDataError, read_json, read_plain

__all__ = ["DEFAULT", "Chip", "Links", "Machine", "collect_chips", "find_chip", "find_machine", "read_machines"]

DEFAULT = "bow"
"""The chip that is meant where none is named."""

_FOLDER = Path(__file__).parent
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/]+)\s*")
_PREFIXES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS: Mapping[str, Mapping[str, float]] = {
    "memory": {
        **{f"{prefix}B": size for prefix, size in _PREFIXES.items()},
        **{f"{prefix}iB": float(1 << 10 * power) for power, prefix in enumerate(("", "K", "M", "G", "T")) if prefix},
    },
    "rate": {f"{prefix}B/s": size for prefix, size in _PREFIXES.items() if prefix},
    "speed": {f"{prefix}FLOP/s": size for prefix, size in _PREFIXES.items() if prefix in ("G", "T", "P")},
}
# what a chip or a link can have: other figures are slips of a unit
_PLAUSIBLE: Mapping[str, Tuple[float, float]] = {
    "tile_memory": (1e3, 1e11),
    "program_memory": (0, 1e10),
    "float16": (1e10, 1e17),
    "float32": (1e9, 1e17),
    "between_chips": (1e8, 1e14),
    "between_pods": (1e7, 1e13),
    "to_host": (1e7, 1e13),
    "streaming_memory": (1e7, 1e13),
}


@dataclass(frozen=True)
class Chip:
    """One accelerator: what lies in it must fit into `tile_bytes` on each of `num_tiles`.

    `float16_flops` and `float32_flops` are the peak operations in a second, a multiply-add being two.
    `program_bytes` is what code, vertex state and exchange take before a model has any layer.

    >>> find_chip("gc200").memory_bytes
    940572672
    """

    name: str
    description: str
    num_tiles: int
    tile_bytes: int
    float16_flops: float
    float32_flops: float
    program_bytes: int
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def memory_bytes(self) -> int:
        """The memory of all tiles."""
        return self.num_tiles * self.tile_bytes


@dataclass(frozen=True)
class Links:
    """What moves data, in bytes a second: between two chips, between pods, from the host, and from streaming memory.

    One link to the host serves `chips_per_host_link` chips; pods of `chips_per_pod` are joined by slower links.
    """

    chip_rate: float
    pod_rate: float
    host_rate: float
    streaming_rate: float
    chips_per_host_link: int
    chips_per_pod: int


@dataclass(frozen=True)
class Machine:
    """A system of `num_chips` equal chips, such as a Bow Pod16.

    >>> find_machine("bow-pod16").num_chips
    16
    """

    name: str
    chip: Chip
    num_chips: int
    links: Links


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ChipText:
    tiles: int
    tile_memory: str
    float16: str
    float32: str


@dataclass(frozen=True)
class _LinksText:
    between_chips: str
    to_host: str
    streaming_memory: str
    chips_per_host_link: int = 1
    between_pods: Optional[str] = None
    chips_per_pod: int = 0


@dataclass(frozen=True)
class _SystemText:
    chips: int


@dataclass(frozen=True)
class _MachineText:
    """The form of a file; docs/planning.md explains each name."""

    name: str
    chip: _ChipText
    links: _LinksText
    systems: Mapping[str, _SystemText]
    program_memory: str = "0 MB"
    description: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


def find_machine(name: str) -> Machine:
    """Return the machine of this name, in any case, or the one that a file describes: `FILE.json` or `FILE.json:NAME`.

    Raises OptionError P002 for an unknown name, and M003 for a file that cannot be used.
    """
    file, _, system = name.strip().partition(".json")
    if system or name.strip().endswith(".json"):
        return _choose(_read_file(Path(f"{file}.json")), system.lstrip(":"))
    return _choose(read_machines(), name)


def find_chip(name: str) -> Chip:
    """Return the chip of this name, in any case; raise OptionError P002 with the known ones for another."""
    known = collect_chips()
    wanted = name.strip().lower() if isinstance(name, str) else name
    if wanted not in known:
        raise _make_unknown("chip", wanted, list(known))
    return known[wanted]


@functools.lru_cache(maxsize=None)
def read_machines() -> Mapping[str, Machine]:
    """Return all machines that this package describes, by name."""
    found: Dict[str, Machine] = {}
    for path in sorted(_FOLDER.glob("*.json")):
        found.update(_read_file(path))
    return found


def collect_chips() -> Mapping[str, Chip]:
    """Return all chips that this package describes, by name."""
    return {machine.chip.name: machine.chip for machine in read_machines().values()}


def _choose(machines: Mapping[str, Machine], name: str) -> Machine:
    wanted = name.strip().lower()
    if not wanted and len(machines) == 1:
        return next(iter(machines.values()))
    if wanted not in machines:
        raise _make_unknown("machine", name, list(machines))
    return machines[wanted]


def _make_unknown(kind: str, name: object, known: list[str]) -> OptionError:
    return OptionError.at_caller(
        "P002",
        message=f"there is no {kind} called {name!r}",
        help=suggest_name(str(name), known, otherwise=f"use one of {', '.join(known)}"),
    )


def _read_file(path: Path) -> Dict[str, Machine]:
    try:
        text = read_plain(_MachineText, read_json(path.read_text(encoding="utf-8")), of_any_version=True)
        return _make_machines(text)
    except OSError as error:
        fault = f"it cannot be read: {error.strerror or error}"
    except (WrongDataError, ValueError, RecursionError) as error:
        fault = str(error)
    raise OptionError.at_caller(
        "M003",
        message=f"`{path}` does not describe a machine: {fault}",
        help='`porting explain M003` shows a file; amounts have units, as in "624 KiB" or "320 GB/s"',
    )


def _make_machines(text: _MachineText) -> Dict[str, Machine]:
    chip = Chip(
        name=text.name.lower(),
        description=text.description or text.name,
        num_tiles=_check_count(text.chip.tiles, "chip.tiles"),
        tile_bytes=int(_read_amount(text.chip.tile_memory, "tile_memory", "memory")),
        float16_flops=_read_amount(text.chip.float16, "float16", "speed"),
        float32_flops=_read_amount(text.chip.float32, "float32", "speed"),
        program_bytes=int(_read_amount(text.program_memory, "program_memory", "memory")),
        sources=dict(text.sources),
    )
    between_chips = text.links.between_chips
    links = Links(
        chip_rate=_read_amount(between_chips, "between_chips", "rate"),
        pod_rate=_read_amount(text.links.between_pods or between_chips, "between_pods", "rate"),
        host_rate=_read_amount(text.links.to_host, "to_host", "rate"),
        streaming_rate=_read_amount(text.links.streaming_memory, "streaming_memory", "rate"),
        chips_per_host_link=_check_count(text.links.chips_per_host_link, "links.chips_per_host_link"),
        chips_per_pod=text.links.chips_per_pod,
    )
    if not text.systems:
        raise WrongDataError("`systems` names no system")
    machines = {}
    for name, system in text.systems.items():
        count = _check_count(system.chips, f"systems.{name}.chips")
        machines[name.lower()] = Machine(name.lower(), chip, count, links)
    return machines


def _check_count(count: int, at: str) -> int:
    if count < 1:
        raise WrongDataError(f"`{at}` must be at least 1")
    return count


def _read_amount(text: str, at: str, kind: str) -> float:
    found = _AMOUNT.fullmatch(text)
    units = _UNITS[kind]
    if found is None or found.group(2) not in units:
        raise WrongDataError(f"`{at}` is {text!r}, and must be a number with one of {', '.join(units)}")
    amount = float(found.group(1)) * units[found.group(2)]
    least, most = _PLAUSIBLE[at]
    if not least <= amount <= most:
        raise WrongDataError(f"`{at}` is {text!r}, which no accelerator has: look at its unit")
    return amount
