"""Programs of the command line as workloads and data sets, in the process that measures them."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from porting.bench.choices import with_choices
from porting.bench.workloads import Workload
from porting.cli.programs import ProgramName, load_program, load_value
from porting.options import PortOptions

__all__ = ["load", "load_data"]


def load(target: str, choices: Mapping[str, Any], cache_dir: Optional[str] = None) -> Workload:
    """Load `target` with what a cell chose; its batch is a micro-batch, of which a call takes as many as it needs."""
    loaded = load_program(target, batch_size=choices.get("batch"))
    options = loaded.options if loaded.options is not None else PortOptions()
    options = with_choices(options, choices, cache_dir=cache_dir)
    rows = loaded.rows * options.micro_batches_per_call
    if rows != loaded.rows:
        # loaded again, so that a function that takes a batch size fills the whole call with its own samples
        loaded = load_program(target, batch_size=rows)
    return Workload(loaded.model, loaded.loss, loaded.batch, loaded.optimizer, options, _shorten_name(target))


def load_data(target: str) -> Any:
    """Load a dataset or DataLoader: the value of the name, or what it returns if it is a function."""
    return load_value(target)


def _shorten_name(target: str) -> str:
    """Name a program without its folder.

    >>> _shorten_name("examples/train.py:make")
    'train.py:make'
    """
    outline = ProgramName.of(target)
    return f"{outline.source.replace(chr(92), '/').rpartition('/')[2]}:{outline.attribute}"
