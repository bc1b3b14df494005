"""Run a plain training program once, as it is, and keep what its objects were and where it called them.

The program computes with values: its loop reads losses and its loader reads files, which tensors without values do not
bear. It runs in a process of its own until it has made some steps, in a copy of the project.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Optional, Sequence

from porting.convert.observed_sites import DryRun
from porting.run import vendor_environment
from porting.support.bound_process import describe_exit, make_environment
from porting.support.project_copies import find_project, is_within
from porting.verify.observation import ProjectRun
from porting.verify.observed_process import add_last_words
from porting.verify.program_runs import start_process

__all__ = ["DryRun", "run_program"]

_START = "from porting.convert.observed_sites import main; main()"
# for what has been found to be written
_GRACE_SECONDS = 10.0


def run_program(
    script: str, arguments: Sequence[str], *, num_steps: int, seconds: int, folder: Optional[str] = None
) -> DryRun:
    """Run a script until each of its optimizers has made some steps, or for some seconds, and return what was seen.

    It is started from `folder`, or from the present one. Whatever ends it is told in `error`, beside what was seen.
    """
    script, working = os.path.abspath(script), os.path.abspath(folder or ".")
    root = find_project(Path(working if is_within(script, Path(working)) else os.path.dirname(script)))
    run = ProjectRun((str(root),), os.path.relpath(working, root) if is_within(working, root) else ".", seconds)
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        (own / "task").write_bytes(pickle.dumps((script, tuple(arguments), num_steps, run)))
        # compilers would only take time
        environment = {**vendor_environment(make_environment()), "PYTHONHASHSEED": "0", "TORCHDYNAMO_DISABLE": "1"}
        with (own / "all.log").open("ab") as log:
            command = [sys.executable, "-c", _START, str(own)]
            status = start_process(command, environment, log, limit_seconds=seconds + _GRACE_SECONDS)
        found = own / "found"
        if found.exists():
            seen: DryRun = pickle.loads(found.read_bytes())
            return replace(seen, error=add_last_words(seen.error, own / "all.log"))
        return DryRun(error=describe_exit(status, (own / "all.log").read_text("utf-8", "replace")))
