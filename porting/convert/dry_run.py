"""Run a plain training program once, as it is, and keep what its objects were and where it called them.

The program computes with values: its loop reads losses and its loader reads files, which tensors without values do not
bear. It runs in a process of its own until it has made some steps, in a working folder of links to the user's files.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Optional, Sequence

from porting.convert.observed_sites import DryRun
from porting.run import vendor_environment
from porting.support.bound_process import describe_exit, make_environment
from porting.verify.program_runs import start_process
from porting.verify.working_folder import link_folder

__all__ = ["DryRun", "run_program"]

_START = "from porting.convert.observed_sites import main; main()"
# for what has been found to be written
_GRACE_SECONDS = 10.0


def run_program(
    script: str, arguments: Sequence[str], *, num_steps: int, seconds: float, folder: Optional[str] = None
) -> DryRun:
    """Run a script until each of its optimizers has made some steps, or for some seconds, and return what was seen.

    It works where it finds what lies in `folder`, or in the present one. Whatever ends it is told in `error`, beside
    what was seen before.
    """
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        link_folder(Path(folder or "."), own / "0")
        task = (os.path.abspath(script), tuple(arguments), num_steps, seconds)
        (own / "task").write_bytes(pickle.dumps(task))
        # compilers would only take time
        environment = {**vendor_environment(make_environment()), "PYTHONHASHSEED": "0", "TORCHDYNAMO_DISABLE": "1"}
        with (own / "log").open("wb") as log:
            command = [sys.executable, "-c", _START, str(own)]
            status = start_process(command, environment, log, limit_seconds=seconds + _GRACE_SECONDS)
        found = own / "found"
        if found.exists():
            seen: DryRun = pickle.loads(found.read_bytes())
            return seen
        return DryRun(error=describe_exit(status, (own / "log").read_text("utf-8", "replace")))
