"""This module makes the workload of a benchmark from a user's program, `PROGRAM:FUNCTION`.

The child processes that measure a case load it with the choices of that case. It stands alone because a process that
makes a workload of the suite needs nothing of it, and imports are measured.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from porting.bench.choices import apply_choices
from porting.bench.workloads import Workload
from porting.cli.programs import load_program
from porting.options import PortOptions

__all__ = ["load_workload"]


def load_workload(target: str, choices: Mapping[str, Any], cache_dir: Optional[str] = None) -> Workload:
    """Load `target` with what a case chose; its batch is a micro-batch, of which a call takes as many as it needs."""
    layers = choices.get("layers")
    loaded = load_program(target, batch_size=choices.get("batch"), layers=layers)
    options = apply_choices(loaded.options or PortOptions(), choices, cache_dir=cache_dir)
    rows = loaded.rows * options.micro_batches_per_call
    if rows != loaded.rows:
        # loaded again, so that a function that takes a batch size fills the whole call with its own samples
        loaded = load_program(target, batch_size=rows, layers=layers)
    # without the folder of the program, whatever the system parts folders with
    short = target.replace("\\", "/").rpartition("/")[2]
    return Workload(loaded.model, loaded.loss, loaded.batch, loaded.optimizer, options, short, loaded.loss_settings)
