"""Bring both trainings again to the step in which they part, and let the place of the fault be looked for there.

`verify` does so where something lies outside of its band.
"""

from __future__ import annotations

import math
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Dict, Iterator, Optional, Sequence, Tuple

import torch

from porting.support.host_state import keep_streams, seed_streams
from porting.verify import fault_location
from porting.verify.calls import Calls
from porting.verify.certificate import Curves, Location, Measured
from porting.verify.inputs import PortMaker
from porting.verify.plain_runs import copy_training, record_calls
from porting.verify.plain_side import Comparison
from porting.verify.plain_training import PlainRun, PlainTraining
from porting.verify.ported_run import PortedTraining, make_call, record_port
from porting.verify.records import Record

__all__ = ["find_place", "kept_port"]

_AFTERWARDS = ("evaluation", "reloading", "resuming")
# a share of the largest tensor, below which one is rounding alone
_NEGLIGIBLE = 1e-4


def find_place(
    comparison: Comparison,
    maker: PortMaker,
    calls: Calls,
    theirs: Calls,
    *,
    first: Measured,
    curves: Curves,
    seed: int,
    records: Sequence[Record] = (),
) -> Optional[Location]:
    """Train both again up to the call in which `first` lies, and locate it.

    `theirs` are the port's batches; `records` are the plain run's and the port's, from which other steps tell whether
    a ratio stays. A port of the user's must be in its first state, and is not afterwards. Raises CaptureError C009
    where torch is too old to capture.
    """
    ported = maker.make()
    per_call = ported.model.options.device_iterations
    is_after = first.kind in _AFTERWARDS
    number = len(calls) if is_after else max(0, math.ceil(first.step / per_call) - 1)
    with keep_streams():
        plain = _train_plain(comparison, calls[:number], seed)
        seed_streams(seed)
        record_port(ported, theirs[:number], Record())
        call = theirs[min(number, len(theirs) - 1)]
        found = fault_location.locate_fault(
            plain,
            ported.model,
            [call],
            first=first,
            curves=curves,
            make_call=partial(make_call, ported),
            ratios={kind: dict(_iter_ratios(kind, *records)) for kind in ("gradient", "update") if records},
        )
    if not maker.is_given:
        ported.model.destroy()
    return None if found is None else fault_location.without_idle_reproduction(found)


def _iter_ratios(kind: str, plain: Record, ported: Record) -> Iterator[Tuple[int, Dict[str, float]]]:
    """Yield how many times plain PyTorch's the port's tensors are, in each kept step; of those that are no noise."""
    for step in plain.list_steps("parameter" if kind == "update" else kind):
        ours, theirs = (record.find(kind, step) for record in (plain, ported))
        least = _NEGLIGIBLE * max((one.norm for one in ours.values()), default=0.0)
        ratios = {
            name: theirs[name].norm / one.norm for name, one in ours.items() if name in theirs and one.norm > least
        }
        if ratios:
            yield step, ratios


def _train_plain(comparison: Comparison, calls: Calls, seed: int) -> PlainTraining:
    own = copy_training(comparison.training)
    seed_streams(seed)
    run = PlainRun(own, comparison.grouping.num_buffers, torch.get_rng_state())
    record_calls(run, calls, comparison.grouping, Record())
    torch.set_rng_state(run.random_state)
    return own


@contextmanager
def kept_port(maker: PortMaker, ported: PortedTraining) -> Iterator[None]:
    """Bring a port of the user's back to where it was afterwards; free the device of any other."""
    if not maker.is_given:
        yield
        ported.model.destroy()
        return
    schedulers = [ported.scheduler] if hasattr(ported.scheduler, "state_dict") else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "start.pt"
        ported.model.save(path, schedulers=schedulers)
        try:
            yield
        finally:
            ported.model.load(path, schedulers=schedulers)
