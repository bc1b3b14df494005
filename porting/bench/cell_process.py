"""The process of a cell: `python -m porting.bench.cell_process TASK FOLDER` leaves its result in FOLDER."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Dict

from porting.atomic_files import write_atomically
from porting.diagnostics import PortingError

__all__ = ["main"]

_LOOK_SECONDS, _GRACE_SECONDS = 1.0, 10.0
_MEMORY_WORDS = ("can't allocate memory", "out of memory", "not enough memory", "bad_alloc", "memoryerror")


def main(task_path: str, folder_path: str) -> int:
    """Measure the cell of the task and write what became of it; return the exit code."""
    folder = Path(folder_path)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        left: Dict[str, Any] = {"status": "done", "reason": "", "result": _measure(task_path, folder)}
    except PortingError as error:
        left = _failure(str(error))
    except Exception as error:
        # whatever a user's model raises is the cell's result: the others must run
        traceback.print_exc()
        left = _failure(f"{type(error).__name__}: {error}")
    write_atomically(folder / "result.json", json.dumps(left).encode())
    return 0 if left["status"] == "done" else 1


def _failure(reason: str) -> Dict[str, Any]:
    is_memory = any(word in reason.lower() for word in _MEMORY_WORDS)
    return {"status": "out_of_memory" if is_memory else "failed", "reason": reason, "result": None}


def _end_with_parent(parent: int) -> None:
    """Stop when nobody waits for the result any more: a parent that was killed cannot say so."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _measure(task_path: str, folder: Path) -> Dict[str, Any]:
    # here, so that a broken installation of torch is a failed cell with a reason
    from .measure import measure
    from .settings import BenchSettings
    from .workloads import Source, load_by_name

    task = json.loads(Path(task_path).read_text(encoding="utf-8"))
    settings = BenchSettings(**task["settings"])

    def progress(text: str, share: float) -> None:
        (folder / "progress").write_text(f"{share} {text}", encoding="utf-8")

    progress("loading", 0.0)
    source = Source(**task["source"])
    workload = source.load(settings.seed)
    dataset = None
    if task["dataset"] is not None:
        loader, arguments = task["dataset"]
        dataset = load_by_name(loader)(**arguments)
    report = measure(workload, settings=settings, source=source, dataset=dataset, progress=progress)
    return {**report.to_dict(), "settings": dataclasses.asdict(settings)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
