"""Rehearse a call on a copy of the simulator's device, and bring the device back to what it was before a call.

The search for NaN and timelines of calls use it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

from ..adapters.backend_protocol import Executor
from .port import Port

if TYPE_CHECKING:
    from ..engines.calls.rehearsal import Rehearsal

__all__ = ["go_back_to", "rehearse"]


def rehearse(port: Port, executor: Executor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[Rehearsal]:
    """Return what a call of the compiled `executor` would do now, on a copy of its device, which it takes.

    No weight, state or generator changes. None for an IPU, whose state stays there.
    """
    compiled = port.backend.compiled_step(executor)
    if compiled is None:
        return None
    # a machine with IPUs may have a torch that the engines are not for
    rehearsal = importlib.import_module("porting.engines.calls.rehearsal").Rehearsal
    make_recordable = importlib.import_module("porting.engines.calls.guards").make_recordable
    session = executor.device_session
    if not session.is_attached:
        executor.attachToDevice()
    if not session.is_training:
        session.follow_training_model(send=executor.copyWeightsToDevice)
    _hosts, inputs = session.prepare(session.parser.bind(tuple(args), dict(kwargs)))
    made: Rehearsal = rehearsal.of(
        compiled.graph,
        compiled.state,
        [make_recordable(tensor) for tensor in inputs],
        compiled.plan,
        groups=session.optimizer.groups,
        group_names=session.optimizer.group_names,
    )
    return made


def go_back_to(port: Port, executor: Executor, rehearsal: Rehearsal) -> None:
    """Let the device of `executor` be as it was when `rehearsal`, of which nothing has run, was made."""
    port.backend.compiled_step(executor).state.write_back(rehearsal.state)
