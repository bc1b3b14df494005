"""This module reads what a compiled program took of each IPU from a PopVision report, and corrects plans by it.

A report is a `profile.pop`, its folder or an `archive.a`, which the vendor's module `pva` reads, or a file of JSON:

    {"ipus": [{"variable_bytes": 40434347, "vertex_code_bytes": 24414353, "vertex_state_bytes": 11348758,
               "exchange_code_bytes": 9779604, "control_code_bytes": 17100804, "fullest_tile_bytes": 106267}]}

The bytes of an IPU are sums over its tiles, without gaps, and `fullest_tile_bytes`, which may be left out, is with
them. Messages, stacks and constants are among the variables. A plan is corrected by one factor for each group of its
terms, what all IPUs took for what was planned, so that plans of other options of the same program carry it. What tiles
are less even than planned is added in bytes: it is much of a small program, and does not grow with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Tuple, Union

from ..diagnostics import OptionError, PortingError, align_columns, take_first_line
from ..support.data_files import make_file_error, read_encoded_lines, require_file
from ..support.plain_data import WrongDataError, read_json, read_plain
from .memory_model import StageMemory, balance_bytes, balance_stage
from .plan_record import Plan
from .plan_text import format_mb

__all__ = ["GROUPS", "Calibration", "MeasuredIpu", "Profile", "calibrate", "read_profile"]

GROUPS: Mapping[str, Tuple[str, ...]] = MappingProxyType(
    {
        "variables": (
            "weight_bytes",
            "buffer_bytes",
            "accumulator_bytes",
            "optimizer_bytes",
            "kept_bytes",
            "recomputed_bytes",
            "temporary_bytes",
            "input_bytes",
        ),
        "code": ("code_bytes",),
        "exchange": ("exchange_bytes",),
    }
)
"""The terms of a plan by what a report calls them, all but the imbalance of tiles."""

# categories of a report; those that a release does not have count nothing, and all others are variables
_CATEGORIES: Mapping[str, Tuple[str, ...]] = {
    "vertex_code_bytes": ("vertexCode",),
    "vertex_state_bytes": ("vertexInstanceState", "vertexFieldData", "vectorListDescriptor", "copyDescriptor"),
    "exchange_code_bytes": (
        "internalExchangeCode",
        "globalExchangeCode",
        "hostExchangeCode",
        "globalExchangePacketHeader",
        "hostExchangePacketHeader",
    ),
    "control_code_bytes": ("controlCode", "controlTable", "controlId"),
}
# no IPU and no tile holds as much
_MOST_BYTES = 10**12
_TIMES_ASTRAY = 20
_FORM = "write it in the form that docs/planning.md shows"


@dataclass(frozen=True)
class MeasuredIpu:
    """The bytes on one IPU: sums over its tiles, and what the fullest tile holds with its gaps, 0 if unknown."""

    variable_bytes: int
    vertex_code_bytes: int
    vertex_state_bytes: int
    exchange_code_bytes: int
    control_code_bytes: int
    fullest_tile_bytes: int = 0

    @property
    def groups(self) -> Dict[str, int]:
        """The bytes of each group of `GROUPS`."""
        return {
            "variables": self.variable_bytes,
            "code": self.vertex_code_bytes + self.vertex_state_bytes,
            "exchange": self.exchange_code_bytes + self.control_code_bytes,
        }


@dataclass(frozen=True)
class Profile:
    """What a report says of the IPUs of a replica, or of those of several replicas, one after the other."""

    ipus: Tuple[MeasuredIpu, ...]


@dataclass(frozen=True)
class Calibration:
    """Planned against measured, in bytes by IPU and group, and what follows from it; as a string it is a table.

    `uneven_bytes` is what an IPU's tiles are less even than is planned of what was measured, 0 if that is unknown.
    """

    planned: Tuple[Mapping[str, int], ...]
    measured: Tuple[Mapping[str, int], ...]
    uneven_bytes: int = 0

    @property
    def factors(self) -> Dict[str, float]:
        """What all IPUs took for each byte that was planned, by group."""
        return {
            name: sum(ipu[name] for ipu in self.measured) / max(1, sum(ipu[name] for ipu in self.planned))
            for name in GROUPS
        }

    def apply(self, plan: Plan) -> Plan:
        """Return the plan with the terms of its IPUs corrected; its remedies keep the sizes that they had."""
        factors = {term: factor for name, factor in self.factors.items() for term in GROUPS[name]}

        def correct(ipu: StageMemory) -> StageMemory:
            terms: Dict[str, Any] = {term: round(factor * ipu.parts[term]) for term, factor in factors.items()}
            even = balance_stage(replace(ipu, **terms))
            return replace(even, imbalance_bytes=max(0, even.imbalance_bytes + self.uneven_bytes))

        return replace(plan, ipus=tuple(map(correct, plan.ipus)))

    def to_dict(self) -> Dict[str, Any]:
        """Return it as plain values, fit for JSON."""
        return {
            "factors": self.factors,
            "uneven_bytes": self.uneven_bytes,
            "ipus": [
                {"planned_bytes": dict(before), "measured_bytes": dict(found)}
                for before, found in zip(self.planned, self.measured)
            ],
        }

    def __str__(self) -> str:
        rows: List[Tuple[str, ...]] = [("", "planned", "measured", "factor")]
        for ipu, (before, found) in enumerate(zip(self.planned, self.measured)):
            rows += [
                (f"IPU {ipu} {name}", format_mb(before[name]), format_mb(size), f"{size / max(1, before[name]):.2f}")
                for name, size in found.items()
            ]
        if len(self.planned) > 1:
            rows += [(f"all {name}", "", "", f"{factor:.2f}") for name, factor in self.factors.items()]
        if self.uneven_bytes:
            rows.append(("less even tiles", "", format_mb(self.uneven_bytes), ""))
        return "\n".join(align_columns(rows, right=range(1, 4)))


def calibrate(plan: Plan, profile: Profile) -> Calibration:
    """Compare a plan with the profile of the same program.

    Raises OptionError P002 for a profile of another number of IPUs, or of so much more or less that it is another
    program's.
    """
    count, present = len(plan.ipus), len(profile.ipus)
    if not present or present % count:
        raise OptionError.of(
            "P002",
            message=f"the profile has {present} IPUs, and a replica of the plan has {count}",
            help=f"plan it as it was compiled: `--ipus {max(1, present)}`, or the same `--stages`",
        )
    planned = tuple(_sum_groups(memory) for memory in plan.ipus)
    # replicas run the same program
    ipus = profile.ipus[:count]
    uneven = [
        ipu.fullest_tile_bytes * plan.target.num_tiles - int(balance_bytes(sum(ipu.groups.values())))
        for ipu in ipus
        if ipu.fullest_tile_bytes
    ]
    found = Calibration(planned, tuple(ipu.groups for ipu in ipus), sum(uneven) // max(1, len(uneven)))
    astray = [name for name, factor in found.factors.items() if not 1 / _TIMES_ASTRAY < factor < _TIMES_ASTRAY]
    if astray:
        raise OptionError.of(
            "P002",
            message=f"the profile is of another program: {found.factors[astray[0]]:,.3g} times the planned {astray[0]}",
            help="plan the program and the batch that were compiled: `--batch`, `--mode`, `--precision`",
        )
    return found


def _sum_groups(memory: StageMemory) -> Dict[str, int]:
    return {name: sum(memory.parts[term] for term in terms) for name, terms in GROUPS.items()}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_profile(path: Union[str, os.PathLike[str]]) -> Profile:
    """Read a report: JSON of the form above, or what `pva` reads; of a folder, the `profile.pop` in it.

    Raises PortingError: F002 for a missing file, F001 for one that is no report, X001 without `pva`.
    """
    file = Path(path)
    if file.is_dir():
        file = next(iter(sorted(file.rglob("profile.pop"))), file / "profile.pop")
    require_file(file, help="name a `profile.pop`, its folder, or a file of JSON")
    return _read_text(file) if file.suffix == ".json" else _read_with_pva(file)


def _read_text(file: Path) -> Profile:
    text = "\n".join(read_encoded_lines(file, encoding="utf-8", fault="byte {byte:#04x} is no UTF-8", help=_FORM))
    try:
        profile = read_plain(Profile, read_json(text), of_any_version=True)
    except json.JSONDecodeError as error:
        raise make_file_error(file, error.msg, line=error.lineno, column=error.colno, help=_FORM) from None
    except (WrongDataError, ValueError, RecursionError) as error:
        raise make_file_error(file, take_first_line(error), help=_FORM) from None
    for number, ipu in enumerate(profile.ipus):
        for name, value in vars(ipu).items():
            if value > _MOST_BYTES:
                what = f"`{name}` is more than any IPU has"
                raise make_file_error(file, what, location=f"IPU {number}", help=_FORM)
    return profile


def _read_with_pva(file: Path) -> Profile:
    if importlib.util.find_spec("pva") is None:
        raise PortingError.of(
            "X001",
            message=f"`{file}` is read by the vendor's module `pva`, which is not installed",
            help=("enable the Poplar SDK", "or take the report's numbers as JSON: docs/planning.md has the lines"),
        )
    pva = importlib.import_module("pva")
    try:
        ipus = list(pva.openReport(str(file)).compilation.ipus)
        return Profile(tuple(_sum_tiles(ipu.tiles) for ipu in ipus))
    # the vendor's reader has errors of its own, and none that another file would have
    except Exception as error:
        raise make_file_error(
            file, take_first_line(error), help="profile the program again, and copy the whole file"
        ) from error


def _sum_tiles(tiles: Any) -> MeasuredIpu:
    sums = dict.fromkeys(_CATEGORIES, 0)
    total = fullest = 0
    for tile in tiles:
        memory = tile.memory
        total += memory.total.excludingGaps
        fullest = max(fullest, memory.total.includingGaps)
        for group, names in _CATEGORIES.items():
            found = (getattr(memory.category, name, None) for name in names)
            sums[group] += sum(category.total for category in found if category is not None)
    return MeasuredIpu(variable_bytes=max(0, total - sum(sums.values())), fullest_tile_bytes=fullest, **sums)
