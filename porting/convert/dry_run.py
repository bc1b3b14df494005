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
from typing import Sequence

from porting.convert.observed_sites import DryRun
from porting.run import vendor_environment
from porting.support.bound_process import describe_exit, make_environment
from porting.verify.program_proof import link_folder, start_process

__all__ = ["DryRun", "run_program"]

_START = "from porting.convert.observed_sites import main; main()"
# for what has been found to be written
_GRACE_SECONDS = 10.0


def run_program(script: str, arguments: Sequence[str], *, num_steps: int, seconds: float) -> DryRun:
    """Run a script until each of its optimizers has made some steps, or for some seconds, and return what was seen.

    Whatever ends the program is told in `error`, beside what was seen before.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        link_folder(Path.cwd(), folder / "0")
        task = (os.path.abspath(script), tuple(arguments), num_steps, seconds)
        (folder / "task").write_bytes(pickle.dumps(task))
        # compilers would only take time
        environment = {**vendor_environment(make_environment()), "PYTHONHASHSEED": "0", "TORCHDYNAMO_DISABLE": "1"}
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-c", _START, str(folder)]
            status = start_process(command, environment, log, seconds=seconds + _GRACE_SECONDS)
        found = folder / "found"
        if found.exists():
            seen: DryRun = pickle.loads(found.read_bytes())
            return seen
        return DryRun(error=describe_exit(status, (folder / "log").read_text("utf-8", "replace")))
