"""Cases that leave a mark and compute nothing, and a program that runs a sweep of them: it may be killed, and go on.

It writes what came of them into `records.json` of its folder.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict

from porting.cli.sweeps import parse_cluster, run_sweep


@dataclass(frozen=True)
class MarkCase:
    """A case by its name: `waits` waits for the file `go`, and `deadly` ends the process that runs it."""

    name: str
    num_threads: int = 1

    def record(self, status: str, *, reason: str = "") -> Dict[str, Any]:
        """Return what came of it."""
        return {"name": self.name, "status": status, "reason": reason}


def run_mark(case: MarkCase, *, folder: str, timeout=None, progress=lambda _text, _share: None) -> Dict[str, Any]:
    """Note that a case was begun, and do what its name says."""
    with open(Path(folder) / "marks", "a", encoding="utf-8") as marks:
        marks.write(f"{case.name}\n")
    if case.name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    while case.name == "waits" and not (Path(folder) / "go").exists():
        progress("waiting", 0.5)
        time.sleep(0.05)
    return case.record("done")


def run_marks(address: str, *names: str) -> None:
    """Run the cases of which there is no record; with `DIES` set, end without a word as soon as there is one."""
    file = Path("records.json")
    records: Dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    cases = {index: (MarkCase(name), None) for index, name in enumerate(names) if name not in records}

    def put(index: int, record: Dict[str, Any]) -> None:
        records[names[index]] = record
        file.write_text(json.dumps(records))
        if "DIES" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)

    run_sweep(
        parse_cluster(address), cases, run_mark, told={}, sweep="now", put=put, look=lambda _under_way, _still: None
    )
