"""Probe the variables that launchers set: poprun's, those of Open MPI, and torchrun's. `examine_machine` runs it."""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, Tuple

from porting.diagnostics import Finding, join_names
from porting.doctor.probes import Probe

__all__ = ["probe_launcher"]

_FAMILIES = (
    ("Open MPI or poprun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("torchrun", "RANK", "WORLD_SIZE"),
)
_PREFIXES = ("POPDIST_", "OMPI_COMM_WORLD_")
_OTHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def probe_launcher() -> Probe:
    """Check whether this process is one of several, and whether all launchers' variables agree."""
    name, expected = "launcher", "variables of one launcher that agree, or none"
    variables = {key: value for key, value in sorted(os.environ.items()) if key.startswith(_PREFIXES) or key in _OTHERS}
    if not variables:
        return Probe(name, expected, "a single process")
    faults = list(_iter_faults(variables))
    places = dict(_iter_places(variables))
    found = ", ".join(f"{launcher}: {index} of {size}" for launcher, (index, size) in places.items())
    finding = None
    if faults:
        finding = Finding(
            "X019",
            faults[0],
            notes=[*faults[1:], f"set are {join_names(variables)}"],
            help="start the program with one launcher: `poprun`, `mpirun`, `torchrun` or `porting run --num-instances`",
        )
    return Probe(name, expected, found or join_names(variables, quote="", most=4), finding)


def _iter_places(variables: Dict[str, str]) -> Iterator[Tuple[str, Tuple[int, int]]]:
    for launcher, index, size in _FAMILIES:
        if variables.get(index, "").isdigit() and variables.get(size, "").isdigit():
            yield launcher, (int(variables[index]), int(variables[size]))


def _iter_faults(variables: Dict[str, str]) -> Iterator[str]:
    for _launcher, index, size in _FAMILIES:
        there: List[str] = [name for name in (index, size) if name in variables]
        if len(there) == 1:
            yield f"{there[0]} is set, and {size if there[0] == index else index} is not"
        for name in there:
            if not variables[name].isdigit():
                yield f"{name} is {variables[name]!r}, which is no number"
    places = dict(_iter_places(variables))
    for launcher, (index_found, size_found) in places.items():
        if index_found >= size_found:
            yield f"{launcher} counts this process as {index_found} of {size_found}, from 0"
    if len(set(places.values())) > 1:
        yield "two launchers count this process: " + ", ".join(f"{k} {i} of {n}" for k, (i, n) in places.items())
    yield from _iter_replica_faults(variables, places)


def _iter_replica_faults(variables: Dict[str, str], places: Dict[str, Tuple[int, int]]) -> Iterator[str]:
    numbers = {}
    for name in ("POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS", "POPDIST_REPLICA_INDEX_OFFSET"):
        if name in variables and not variables[name].isdigit():
            yield f"{name} is {variables[name]!r}, which is no number"
        elif name in variables:
            numbers[name.partition("_NUM_")[2] or "OFFSET"] = int(variables[name])
    total, local = numbers.get("TOTAL_REPLICAS"), numbers.get("LOCAL_REPLICAS")
    if total is not None and local is not None and local > total:
        yield f"{local} replicas of {total} altogether are in this instance"
    sizes = {size for _index, size in places.values()}
    if total is not None and len(sizes) == 1 and total % max(sizes):
        yield f"{total} replicas do not divide by {max(sizes)} instances"
    if any(name.startswith("POPDIST_") for name in variables) and total is None:
        yield "variables of POPDIST_ are set, and POPDIST_NUM_TOTAL_REPLICAS is not"
