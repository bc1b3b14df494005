"""This module writes and reads result files.

A file is written after every case, so that an interrupted run keeps what it has measured. It says on which machine that
was, and holds what the classes of `ResultContent` describe.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import os
import platform
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from porting.bench.case_tables import summarize_cases
from porting.bench.choices import BenchSettings
from porting.bench.processes import Case, run_case
from porting.cli.output_files import write_output
from porting.diagnostics import PortingError
from porting.executables.machine import describe_processor
from porting.support.plain_data import WrongDataError, read_plain
from porting.support.process import usable_cores
from porting.version import VERSION

__all__ = [
    "SCHEMA_NAME",
    "SCHEMA_VERSION",
    "ResultFile",
    "describe_machine",
    "list_machine_differences",
    "read_results",
    "run_elsewhere",
]

SCHEMA_NAME, SCHEMA_VERSION = "porting-bench", 1


class ResultFile:
    """The results of a run, kept in a file if there is a path for one; cases that have not run yet are in it, too.

    `content` is everything, as the file has it. `demanded_mean` is what is asked of the geometric mean of the cases.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        path: Optional[Path] = None,
        *,
        earlier: Optional[Mapping[str, Any]] = None,
        demanded_mean: Optional[float] = None,
    ) -> None:
        """Note all cases as not run, and write the file: what cannot be written must not be found out at the end.

        `earlier` is the content of a file that this run goes on with. Its cases stay in their places; those that this
        run has as well are done if they were done with the same settings. Raises PortingError T006 where they are
        results of another machine.
        """
        self._path, self._demanded_mean = path, demanded_mean
        records: List[Dict[str, Any]] = [] if earlier is None else list(earlier["cells"])
        self._places = _place_cases(cases, records)
        self.content: Dict[str, Any] = {
            "schema": SCHEMA_NAME,
            "version": SCHEMA_VERSION,
            "created": _write_now(),
            "finished": None,
            "complete": False,
            "machine": describe_machine(),
            "cells": records,
            "summary": None,
        }
        if earlier is not None:
            self._go_on_with(earlier)
        self._write_file()

    def _go_on_with(self, earlier: Mapping[str, Any]) -> None:
        differences = list_machine_differences(earlier["machine"], self.content["machine"])
        if differences:
            raise PortingError.of(
                "T006",
                message="the results to go on with are those of another machine",
                notes=differences,
                help="name another file, or leave out `--resume` to begin anew",
            )
        # its load as well: now this machine is as busy as the run that was ended has made it
        self.content.update(created=earlier["created"], machine=earlier["machine"])

    def put(self, index: int, record: Dict[str, Any]) -> None:
        """Put in what became of a case of this run."""
        self.cases[self._places[index]] = _replace_not_finite(record)
        self._write_file()

    def finish(self) -> None:
        """Note that every case of this run has had its turn; the file is complete if the others have had theirs."""
        statuses = {record["status"] for record in self.cases}
        self.content.update(finished=_write_now(), complete=not statuses & {"not_run", "interrupted"})
        self._write_file()

    @property
    def cases(self) -> List[Dict[str, Any]]:
        """The records of all cases, those of a file that this run goes on with among them."""
        return self.content["cells"]

    @property
    def own_cases(self) -> List[Dict[str, Any]]:
        """The records of the cases of this run."""
        return [self.cases[place] for place in self._places]

    def _write_file(self) -> None:
        self.content["summary"] = summarize_cases(self.cases, demanded_mean=self._demanded_mean)
        if self._path is not None:
            write_output(self._path, (json.dumps(self.content, indent=2, allow_nan=False) + "\n").encode())


def run_elsewhere(case: Case, **told: Any) -> Dict[str, Any]:
    """Measure a case on another machine than that of the results, and say which it is."""
    return {**run_case(case, **told), "machine": describe_machine()}


def read_results(path: Union[str, Path]) -> Dict[str, Any]:
    """Read a result file; raises PortingError T005 for what is none, or one of another version."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        problem = _complete_content(content)
    except OSError as error:
        problem = f"it cannot be read: {error.strerror or error}"
    except (ValueError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        raise PortingError.of(
            "T005",
            message=f"`{path}` is no result file of `porting bench`",
            notes=[problem],
            help="name a file that `porting bench --json FILE` has written",
        )
    return content


def _complete_content(content: Any) -> str:
    """Put in what an earlier version did not measure, as left out; return what is wrong, if anything."""
    if isinstance(content, dict) and content.get("version", SCHEMA_VERSION) != SCHEMA_VERSION:
        return f"its version is {content['version']!r}, this porting reads {SCHEMA_VERSION}"
    # the types are those of reports, which import torch: a run that reads no file goes without
    of_files = importlib.import_module("porting.bench.report").ResultContent
    try:
        records = read_plain(of_files, content, of_any_version=True).cells
    except WrongDataError as error:
        return str(error)
    for case, record in zip(content["cells"], records):
        case["choices"] = asdict(record.choices)
        case["result"] = None if record.result is None else _replace_not_finite(record.result.to_dict())
    return ""


def _place_cases(cases: Sequence[Case], records: List[Dict[str, Any]]) -> List[int]:
    """Find the places of cases among earlier records, and append the others; what is not done is not run."""
    free: Dict[str, List[int]] = {}
    for place, record in enumerate(records):
        free.setdefault(_name_record(record), []).append(place)
    places = []
    for case in cases:
        own = case.record("not_run")
        same = free.get(_name_record(own))
        if not same:
            records.append(own)
        elif not _is_done(records[same[0]], case):
            records[same[0]] = own
        places.append(same.pop(0) if same else len(records) - 1)
    return places


def _name_record(record: Mapping[str, Any]) -> str:
    """Name a case by what it measures."""
    return json.dumps([record[name] for name in ("name", "target", "choices", "repeat")], sort_keys=True)


def _is_done(record: Mapping[str, Any], case: Case) -> bool:
    """Say whether a case was measured, and as it would be now."""
    if record["status"] != "done" or record["result"] is None:
        return False
    return BenchSettings(**record["result"]["settings"]) == case.settings


def _replace_not_finite(value: object) -> Any:
    """Replace numbers that JSON does not have by null: a loss that is not a number is one of them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _replace_not_finite(item) for key, item in value.items()}
    return [_replace_not_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _write_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


# -- the machine -------------------------------------------------------------------------------------------------------

_COMPARED = ("processor", "num_cores", "system", "python", "torch", "porting", "omp_num_threads")


def describe_machine() -> Dict[str, Any]:
    """Return what this machine is and how busy it is, as plain values; None where it does not tell."""
    memory_bytes = torch_version = None
    with suppress(AttributeError, OSError, ValueError):
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(importlib.metadata.PackageNotFoundError):
        torch_version = importlib.metadata.version("torch")
    return {
        "processor": describe_processor()["name"],
        "num_cores": usable_cores(),
        "memory_bytes": memory_bytes,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch_version,
        "porting": VERSION,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def list_machine_differences(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> List[str]:
    """List the differences between two machines, apart from their load.

    >>> list_machine_differences({"torch": "2.0"}, {"torch": "2.13"})
    ['torch: 2.0 then, 2.13 now']
    """
    return [
        f"{key.replace('_', ' ')}: {earlier.get(key)} then, {later.get(key)} now"
        for key in _COMPARED
        if earlier.get(key) != later.get(key)
    ]
