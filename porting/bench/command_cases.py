"""This module lists the cases that `porting bench` is asked for: of which targets, with what varied, and which part.

`porting.bench.command` measures them one after the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from porting.bench.benchmark_files import FileEntry, read_benchmarks
from porting.bench.choices import COUNTS, MATRIX_KEYS, PRECISIONS, BenchSettings, expand
from porting.bench.processes import Case
from porting.cli import count
from porting.diagnostics import Finding, PortingError, suggest_name

__all__ = [
    "DEFAULT_TIMEOUT",
    "Part",
    "choose_cases",
    "choose_entries",
    "choose_suite",
    "find_demanded_mean",
    "load_workloads",
    "make_cases",
    "parse_part",
    "read_matrix",
]

DEFAULT_TIMEOUT = 1800.0
"""Seconds after which a case is given up."""


_FILES = (".yml", ".yaml", ".json")


class Part(NamedTuple):
    """One of several equal parts of all cases; the first is number 1."""

    number: int
    parts: int


def parse_part(text: str) -> Part:
    """Read "2/4".

    >>> parse_part("2/4")
    Part(number=2, parts=4)
    """
    number, _, parts = text.partition("/")
    try:
        part = Part(count(number), count(parts))
    except ValueError:
        part = Part(1, 0)
    if part.number > part.parts:
        raise argparse.ArgumentTypeError("write K/N, the K-th of N parts, as in 1/4")
    return part


def choose_cases(cases: Sequence[Any], part: Optional[Part]) -> Sequence[Any]:
    """Choose a part of the cases, every N-th of them: neighbours are often alike, so that parts take about as long.

    >>> choose_cases("abcde", Part(2, 2))
    'bd'
    """
    return cases if part is None else cases[part.number - 1 :: part.parts]


def choose_entries(target: str, *, only: Sequence[str] = ()) -> Tuple[List[FileEntry], List[Finding]]:
    """Find what a target stands for, or what is wrong with its file; `only` are patterns, of which a name fits one.

    Raises PortingError T001, T002 or X001.
    """
    entries, findings = _find_entries(target)
    fitting = [entry for entry in entries if not only or any(fnmatch.fnmatch(entry.name, one) for one in only)]
    if entries and not fitting:
        names = ", ".join(entry.name for entry in entries)
        raise PortingError.of("T002", message=f"no name fits {' or '.join(only)}", help=f"there are {names}")
    return fitting, findings


def choose_suite(name: str) -> str:
    """Return the name of a suite; raises PortingError T002 where there is none of this name."""
    groups = list(load_workloads().GROUPS)
    if name not in groups:
        raise PortingError.of(
            "T002",
            message=f"there is no suite `{name}`",
            help=[*filter(None, [suggest_name(name, groups)]), f"suites are {', '.join(groups)}"],
        )
    return name


def find_demanded_mean(target: str, *, num_entries: int) -> Optional[float]:
    """Find what is asked of the mean of a whole suite; of some of its entries, nothing is."""
    if ":" in target or target.endswith(_FILES):
        return None
    suite = load_workloads()
    mean: Optional[float] = suite.DEMANDED_MEANS.get(target)
    return mean if num_entries == len(suite.GROUPS.get(target, ())) else None


def _find_entries(target: str) -> Tuple[List[FileEntry], List[Finding]]:
    if target.endswith(_FILES):
        return read_benchmarks(Path(target))
    suite = load_workloads()
    if ":" in target:
        return [FileEntry(name=target.replace("\\", "/").rpartition("/")[2], target=target)], []
    entries = []
    for name in suite.GROUPS.get(target, [target]):
        precisions = list(_find_workload(name).demanded) or ["float32"]
        entries.append(FileEntry(name=name, target=name, matrix={"precision": precisions}))
    return entries, []


def load_workloads() -> Any:
    """Import the workloads that have names."""
    # they make models: this loads torch, which files of benchmarks and wrong usage do without
    from porting.bench import suite

    return suite


def _find_workload(name: str) -> Any:
    suite = load_workloads()
    if name in suite.WORKLOADS:
        return suite.WORKLOADS[name]
    near = suggest_name(name, [*suite.GROUPS, *suite.WORKLOADS])
    remedies = [near] if near else []
    in_file = f"name what the file is to be taken from it: `{name}:NAME`"
    in_suite = "`porting bench --list` lists the suite; a target of yours is `file.py:name`"
    remedies.append(in_file if name.endswith(".py") else in_suite)
    raise PortingError.of("T002", message=f"there is no benchmark `{name}`", help=remedies)


def read_matrix(arguments: argparse.Namespace) -> Dict[str, List[Any]]:
    """Read `--matrix`, with `--batch` and the like as lists of one."""
    matrix: Dict[str, List[Any]] = {}
    for word in arguments.matrix:
        key, equals, values = word.partition("=")
        if not equals or key not in MATRIX_KEYS:
            arguments.wrong_usage(f"--matrix {word}: write KEY=A,B with one of {', '.join(MATRIX_KEYS)}")
        try:
            matrix[key] = [count(value) if key in COUNTS else value for value in values.split(",")]
        except (ValueError, argparse.ArgumentTypeError):
            arguments.wrong_usage(f"--matrix {word}: {key} takes numbers from 1 on")
        wrong = [value for value in matrix[key] if not value or (key == "precision" and value not in PRECISIONS)]
        if wrong:
            arguments.wrong_usage(f"--matrix {word}: {wrong[0]!r} is no {key}; known are {', '.join(PRECISIONS)}")
    for key in ("batch", "precision", "engine"):
        value = getattr(arguments, key)
        if value is not None and key in matrix:
            arguments.wrong_usage(f"--{key} and --matrix {key}=... say it twice")
        if value is not None:
            matrix[key] = [value]
    return matrix


def make_cases(entry: FileEntry, matrix: Mapping[str, Sequence[Any]], arguments: argparse.Namespace) -> Iterator[Case]:
    """Make the cases of an entry; what the command line says goes before what the file says.

    Raises PortingError X001 where a library that makes the model is missing.
    """
    own = _find_workload(entry.target) if ":" not in entry.target else None
    for library in own.needs if own else ():
        from porting.bench.public_models import require_library

        require_library(library)
    loader = "porting.bench.suite:load" if own else "porting.bench.programs:load_workload"
    loaded_data = arguments.loader or entry.loader
    demand = entry.demand if entry.demand is not None or own is None else own.demanded
    combined = {"engine": ["auto"], **(own.matrix if own else {}), **entry.matrix, **matrix}
    settings = BenchSettings(**{**(own.settings if own else {}), **entry.settings})
    settings = settings.quick() if arguments.quick else settings
    given = {field.name: getattr(arguments, field.name, None) for field in dataclasses.fields(BenchSettings)}
    settings = dataclasses.replace(settings, **{key: value for key, value in given.items() if value is not None})
    for choices in expand(combined):
        for repeat in range(1, (arguments.repeats or entry.repeats) + 1):
            yield Case(
                name=entry.name,
                target=entry.target,
                loader=loader,
                arguments={"name" if own else "target": entry.target, "choices": dataclasses.asdict(choices)},
                choices=choices,
                settings=dataclasses.replace(settings, threads=choices.threads or settings.threads),
                repeat=repeat,
                demanded=(demand or {}).get(choices.precision or "float32"),
                dataset_loader="porting.cli.programs:load_value" if loaded_data else None,
                dataset_arguments={"target": loaded_data} if loaded_data else {},
            )
