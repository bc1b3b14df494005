"""A training that goes on from a file alone, here and in a process of its own: what the file lacks shows there."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator, List, Sequence

import torch

from porting.comparison.sketches import distance_of_sketches
from porting.diagnostics import take_first_line
from porting.verify.calls import MicroBatch
from porting.verify.certificate import Measured
from porting.verify.ported_run import PortedTraining, end_call, make_call, name_ported_state
from porting.verify.records import Sketches, sketch_all

__all__ = [
    "RunElsewhere",
    "compare_fresh_process",
    "compare_resumed",
    "go_on_in_folder",
    "save_port",
    "sketch_state",
    "train_further",
]

RunElsewhere = Callable[[Path], None]
"""Starts a process that calls `go_on_in_folder` with a port that it has made itself, and waits for its end."""

_NUM_RESUMED, _UNITS = 2, 16.0
_SAVED, _CALLS, _LEFT = "saved.pt", "calls.pt", "left.pt"


def save_port(ported: PortedTraining, path: Path, *, is_users: bool = False) -> None:
    """Save a port's training; with `is_users` by the user's own function, where there is one."""
    if is_users and ported.save is not None:
        ported.save(ported.model, path)
    else:
        ported.model.save(path, schedulers=_own_schedulers(ported))


def _load_port(ported: PortedTraining, path: Path) -> None:
    if ported.load is not None:
        ported.load(ported.model, path)
    else:
        ported.model.load(path, schedulers=_own_schedulers(ported))


def _own_schedulers(ported: PortedTraining) -> List[Any]:
    """List the schedules of the loop that a checkpoint can hold."""
    own = ported.scheduler
    return [own] if own is not None and hasattr(own, "state_dict") else []


def sketch_state(ported: PortedTraining) -> Sketches:
    """Return what a port's training consists of: parameters, buffers and the optimizer's state."""
    model = ported.model
    named = {**dict(model.model.named_parameters()), **dict(model.model.named_buffers()), **name_ported_state(model)}
    return sketch_all(named)


def train_further(ported: PortedTraining, calls: Sequence[MicroBatch]) -> Sketches:
    """Make some more calls, with the schedule, and return what they leave, their losses and learning rates."""
    losses: List[float] = []
    # epochs and the loop's own state are no part of a checkpoint of the port
    work = replace(ported, each_epoch=None, also=None).list_work()
    work.schedulers = [one for one in work.schedulers if hasattr(one, "state_dict")]
    for number in range(_NUM_RESUMED):
        args, kwargs = calls[number % len(calls)]
        own = ported.model.loss_of(make_call(ported, args, kwargs)).detach().double().flatten().tolist()
        end_call(work, own, ported.model.options, ends_epoch=True)
        losses += own
    rates = [float(group["lr"]) for group in work.optimizer.param_groups]
    found = {"losses": torch.tensor(losses).double(), "learning rates": torch.tensor(rates).double()}
    return {**sketch_state(ported), **sketch_all(found)}


def compare_resumed(
    ported: PortedTraining, path: Path, calls: Sequence[MicroBatch], first: Sketches, step: int, unit: float
) -> Iterator[Measured]:
    """Go back to a saved state and go on: that must leave what going on without it has left, `first`."""
    _load_port(ported, path)
    yield from _compare_left("resuming", first, train_further(ported, calls), step, unit)


def compare_fresh_process(
    run: RunElsewhere, path: Path, calls: Sequence[MicroBatch], first: Sketches, step: int, unit: float
) -> Iterator[Measured]:
    """Go on from a saved state in a process of its own, which has nothing but the program and the file."""
    folder = path.with_name("elsewhere")
    folder.mkdir()
    shutil.move(str(path), str(folder / _SAVED))
    torch.save([calls[number % len(calls)] for number in range(_NUM_RESUMED)], folder / _CALLS)
    try:
        run(folder)
        left = torch.load(folder / _LEFT, weights_only=False)
    except (OSError, RuntimeError) as error:
        note = f"it fails in a process of its own: {take_first_line(error)}"
        yield Measured("fresh process", "training", step, math.inf, 0.0, 0.0, note)
        return
    yield from _compare_left("fresh process", first, left, step, unit)


def go_on_in_folder(ported: PortedTraining, folder: Path) -> None:
    """Go on from the file in a folder that `compare_fresh_process` has filled, and leave there what that leaves."""
    calls = torch.load(folder / _CALLS, weights_only=False)
    _load_port(ported, folder / _SAVED)
    torch.save(train_further(ported, calls), folder / _LEFT)


def _compare_left(kind: str, first: Sketches, again: Sketches, step: int, unit: float) -> Iterator[Measured]:
    for name, one in first.items():
        other = again.get(name)
        if other is None or other.shape != one.shape:
            yield Measured(kind, name, step, math.inf, one.norm, 0.0, "it is missing after resuming")
            continue
        apart = distance_of_sketches(one, other)
        if one.num_not_finite != other.num_not_finite:
            apart = math.inf
        yield Measured(kind, name, step, apart, one.norm, _UNITS * unit * one.norm)
