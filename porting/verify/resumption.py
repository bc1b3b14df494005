"""Resume a training from a file alone, here and in a process of its own: what the file lacks shows there.

`verify` does so after the last step.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator, List, NamedTuple

import torch

from porting.comparison.sketches import distance_of_sketches
from porting.diagnostics import take_first_line
from porting.verify.calls import Calls
from porting.verify.certificate import Measured
from porting.verify.ported_run import PortedTraining, end_call, make_call, name_ported_state
from porting.verify.records import Sketches, sketch_all

__all__ = [
    "GoneOn",
    "RunElsewhere",
    "compare_fresh_process",
    "compare_resumed",
    "compare_states",
    "go_on",
    "go_on_in_folder",
    "save_port",
    "sketch_state",
]

RunElsewhere = Callable[[Path], None]
"""Starts a process that calls `go_on_in_folder` with a port that it has made itself, and waits for its end."""


class GoneOn(NamedTuple):
    """A training that went on: the state that it began with, and what it has left."""

    begun: Sketches
    left: Sketches


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


def go_on(ported: PortedTraining, calls: Calls) -> GoneOn:
    """Train further from where a port is, and return what that begins with and leaves."""
    return GoneOn(sketch_state(ported), _train_further(ported, calls))


def _train_further(ported: PortedTraining, calls: Calls) -> Sketches:
    """Make some more calls, with the schedule, and return what they leave, their losses and learning rates."""
    losses: List[float] = []
    # epochs and the loop's own state are no part of a checkpoint of the port
    work = replace(ported, each_epoch=None, also=None).list_work()
    work.schedulers = [one for one in work.schedulers if hasattr(one, "state_dict")]
    for args, kwargs in calls.repeat(_NUM_RESUMED):
        own = ported.model.loss_of(make_call(ported, args, kwargs)).detach().double().flatten().tolist()
        end_call(work, own, ported.model.options, ends_epoch=True)
        losses += own
    rates = [float(group["lr"]) for group in work.optimizer.param_groups]
    found = {"losses": torch.tensor(losses).double(), "learning rates": torch.tensor(rates).double()}
    return {**sketch_state(ported), **sketch_all(found)}


def compare_resumed(
    ported: PortedTraining, path: Path, calls: Calls, first: GoneOn, step: int, unit: float
) -> Iterator[Measured]:
    """Go back to a saved state and go on: that must leave what going on without it has left, `first`."""
    _load_port(ported, path)
    return _compare_courses("resuming", first, go_on(ported, calls), step, unit)


def compare_fresh_process(
    run: RunElsewhere, path: Path, calls: Calls, first: GoneOn, step: int, unit: float
) -> Iterator[Measured]:
    """Go on from a saved state in a process of its own, which has nothing but the program and the file."""
    folder = path.with_name("elsewhere")
    folder.mkdir()
    shutil.move(str(path), str(folder / _SAVED))
    torch.save(list(calls.repeat(_NUM_RESUMED)), folder / _CALLS)
    try:
        run(folder)
        left = torch.load(folder / _LEFT, weights_only=False)
    except (OSError, RuntimeError) as error:
        note = f"it fails in a process of its own: {take_first_line(error)}"
        return iter([Measured("fresh process", "training", step, math.inf, 0.0, 0.0, note)])
    return _compare_courses("fresh process", first, left, step, unit)


def go_on_in_folder(ported: PortedTraining, folder: Path) -> None:
    """Go on from the file in a folder that `compare_fresh_process` has filled, and leave there what that leaves."""
    calls = Calls(torch.load(folder / _CALLS, weights_only=False))
    _load_port(ported, folder / _SAVED)
    torch.save(go_on(ported, calls), folder / _LEFT)


def _compare_courses(kind: str, first: GoneOn, again: GoneOn, step: int, unit: float) -> Iterator[Measured]:
    """Compare what two courses leave; where that differs, what they have begun with tells why, before all else."""
    units = _UNITS * unit
    left = list(compare_states(kind, step, first.left, again.left, units=units, lacking="it is missing after resuming"))
    if not all(one.is_inside for one in left):
        words = "the file does not hold it, or it is not loaded"
        begun = compare_states(kind, step, first.begun, again.begun, units=units, fault=words, lacking=words)
        yield from (one for one in begun if not one.is_inside)
    yield from left


def compare_states(
    kind: str, step: int, ones: Sketches, others: Sketches, *, units: float = 0.0, fault: str = "", lacking: str
) -> Iterator[Measured]:
    """Compare two states by names; `units` are a share of each tensor that it may be off.

    The notes are `fault` of a tensor that is another, and `lacking` of one that only one state has in its shape.
    """
    for name in {**ones, **others}:
        one, other = ones.get(name), others.get(name)
        if one is None or other is None or one.shape != other.shape:
            yield Measured(kind, name, step, math.inf, 0.0, 0.0, lacking)
            continue
        # to load half types into float32 changes nothing
        apart = distance_of_sketches(one, other) if one.num_not_finite == other.num_not_finite else math.inf
        band = units * one.norm
        yield Measured(kind, name, step, apart, one.norm, band, fault if apart > band else "")
