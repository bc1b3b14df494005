"""A sweep of commands runs one verb of `porting` many times, each in a process of its own, wherever that is.

What came of each is kept in a file, with which a sweep that was killed goes on.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from porting.cli import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_RUN
from porting.cli.main import main
from porting.cli.output_files import require_folders, write_output
from porting.cli.sweeps import ON_HELP, Cluster, hold_results, parse_cluster, tell_sweep
from porting.diagnostics import PortingError, align_columns, show
from porting.support.bound_process import BoundProcess, make_environment
from porting.support.process_outcomes import Progress, wait_for_outcome
from porting.version import VERSION

__all__ = [
    "CommandCase",
    "Judge",
    "add_sweep_arguments",
    "do_command",
    "print_sweep",
    "read_message",
    "run_command",
    "sweep_commands",
]

JOURNAL = "sweep.json"
"""The file of a sweep, in the folder of what it writes."""

_FORM = "porting sweep"


@dataclass(frozen=True)
class CommandCase:
    """One command of a sweep: `words` are what stands after `porting`, and `name` tells it from the others."""

    name: str
    words: Tuple[str, ...]
    num_threads: int = 1

    def record(self, status: str, *, reason: str = "", seconds: float = 0.0, **ended: Any) -> Dict[str, Any]:
        """Return the case as the file of the sweep has it; `ended` is what there is of a command that has ended."""
        known = {"name": self.name, "words": list(self.words), "status": status, "reason": reason, "seconds": seconds}
        return {**known, "exit_status": EXIT_NOT_RUN, "verdict": status.replace("_", " "), **ended}


class Swept(NamedTuple):
    """What came of a sweep: a record of each case, and whether it was interrupted."""

    records: Sequence[Mapping[str, Any]]
    is_interrupted: bool

    @property
    def exit_status(self) -> int:
        """That of the worst case."""
        if self.is_interrupted:
            return EXIT_INTERRUPTED
        return max((record["exit_status"] for record in self.records), default=EXIT_DONE)


Judge = Callable[[CommandCase, str], Mapping[str, Any]]
"""Reads the JSON that a command has printed: its `verdict`, and perhaps a `reason` and the `file` that it has kept."""


def add_sweep_arguments(parser: argparse.ArgumentParser, cases: str) -> Any:
    """Add where a sweep runs, and how it goes on; `cases` says what they are. Returns the group of these arguments."""
    swept = parser.add_argument_group(f"a sweep: {cases}")
    swept.add_argument("--on", type=parse_cluster, metavar="CLUSTER", help=ON_HELP)
    swept.add_argument("--resume", action="store_true", help="go on with the folder of --out: what is done stays")
    return swept


def sweep_commands(
    cluster: Optional[Cluster],
    cases: Sequence[CommandCase],
    judge: Judge,
    *,
    folder: Optional[Path] = None,
    resumes: bool = False,
) -> Swept:
    """Run each command once, and say how far it is; `folder` gets a file of what came of them.

    With `resumes` those stay that this file has as done. Raises PortingError E029, T005, T007, T008 or X001 before
    anything runs.
    """
    path = None if folder is None else folder / JOURNAL
    require_folders(path)
    with hold_results(path, cases[0].words[0]):
        content = _begin_journal(cases, path if resumes else None)
        records: List[Dict[str, Any]] = content["cases"]
        _write_journal(path, content)

        def put(index: int, record: Dict[str, Any]) -> str:
            output = record.pop("output", "")
            records[index] = {**record, **(judge(cases[index], output) if record["status"] == "done" else {})}
            _write_journal(path, content)
            return f"{records[index]['verdict']} after {record['seconds']:.0f} s"

        waiting = {index: (case, None) for index, case in enumerate(cases) if records[index]["status"] != "done"}
        names = [case.name for case in cases]
        return Swept(
            records,
            tell_sweep(cluster or Cluster(), names, waiting, run_command, told={}, sweep=content["created"], put=put),
        )


def print_sweep(swept: Swept, format: str) -> None:
    """Print a row for each case and how many there are of each verdict, or the records as data."""
    records = swept.records
    if format == "json":
        print(json.dumps({"cases": records}, indent=2))
        return
    rows = [(one["verdict"], one["name"], f"{one['seconds']:.0f} s", one["reason"]) for one in records]
    verdicts = [record["verdict"] for record in records]
    numbers = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    show("\n".join([*align_columns(rows, right={2}), f"of {len(records)}: {numbers}"]))
    if swept.is_interrupted:
        print("interrupted", file=sys.stderr)


def _begin_journal(cases: Sequence[CommandCase], path: Optional[Path]) -> Dict[str, Any]:
    """Note all cases as not run, save those that the file of a path has as done by this version."""
    content = {"form": _FORM, "version": 1, "porting": VERSION, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    earlier = None if path is None or not path.exists() else _read_journal(path)
    done: Dict[Tuple[str, ...], Dict[str, Any]] = {}
    if earlier is not None:
        content["created"] = earlier["created"]
        if earlier["porting"] == VERSION:
            done = {tuple(one["words"]): one for one in earlier["cases"] if _is_done(one)}
    return {**content, "cases": [done.get(case.words) or case.record("not_run") for case in cases]}


def _is_done(record: Mapping[str, Any]) -> bool:
    return record["status"] == "done" and ("file" not in record or Path(record["file"]).exists())


def _read_journal(path: Path) -> Dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["form"] == _FORM and content["version"] == 1:
            return {name: content[name] for name in ("created", "porting", "cases")}
        problem = "it is of another kind or version"
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise PortingError.of(
        "T005",
        message=f"`{path}` holds no sweep to go on with",
        notes=[problem],
        help="leave out `--resume` to begin anew, or name another folder",
    )


def _write_journal(path: Optional[Path], content: Mapping[str, Any]) -> None:
    if path is not None:
        write_output(path, f"{json.dumps(content, indent=1)}\n".encode())


# -- one case ----------------------------------------------------------------------------------------------------------


def run_command(
    case: CommandCase,
    *,
    timeout: Optional[float] = None,
    folder: str,
    progress: Progress = lambda _text, _share: None,
) -> Dict[str, Any]:
    """Run a command in a process of its own, and return its record with what it has printed.

    It is done where its exit status is an answer. What `progress` raises ends it and is passed on.
    """
    start = time.perf_counter()
    process = BoundProcess(
        "porting.cli.swept_commands:do_command",
        {"words": case.words},
        working_folder=folder,
        environment=make_environment(),
    )
    try:
        process.start()
        ended = wait_for_outcome(process, timeout, progress)
        said = process.read_end_of_log()
    finally:
        process.end()
    seconds = time.perf_counter() - start
    if ended.status != "done":
        return case.record(ended.status, reason=ended.reason, seconds=seconds)
    if ended.result["exit_status"] not in (EXIT_DONE, EXIT_FAILED):
        return case.record("failed", reason=read_message(said), seconds=seconds)
    return case.record("done", seconds=seconds, **ended.result)


def do_command(arguments: Mapping[str, Any], folder: Path) -> Dict[str, Any]:
    """Run a command here, and return its exit status and what it prints."""
    (folder / "progress").write_text("0.0 under way", encoding="utf-8")
    with redirect_stdout(io.StringIO()) as output:
        try:
            status = main(arguments["words"])
        except SystemExit as end:  # wrong words
            status = EXIT_NOT_RUN if end.code is None else int(end.code)
    return {"exit_status": status, "output": output.getvalue()}


def read_message(said: str) -> str:
    r"""Read why a command with `--format json` gave no answer: the last finding, or else the last line.

    >>> read_message("loading\n")
    'loading'
    """
    lines = said.strip().splitlines() or ["it said nothing"]
    findings = [json.loads(line)["message"] for line in lines if line.startswith('{"code"')]
    return str((findings or lines)[-1])
