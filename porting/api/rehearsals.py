"""Calls that are looked at without running them: on a copy of the simulator's device, and the way back to it."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ..engines.calls.guards import make_recordable
from ..engines.calls.rehearsal import Rehearsal
from .port import Port

__all__ = ["go_back_to", "rehearse"]


def rehearse(port: Port, executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[Rehearsal]:
    """Return what a call of the compiled `executor` would do now, on a copy of its device, which it takes.

    No weight, state or generator changes. None for an IPU, whose state stays there.
    """
    compiled = port.backend.compiled_step(executor)
    if compiled is None:
        return None
    session = executor.device_session
    if not session.is_attached:
        executor.attachToDevice()
    if not session.is_training:
        session.follow_training_model(send=executor.copyWeightsToDevice)
    _hosts, inputs = session.prepare(session.parser.bind(tuple(args), dict(kwargs)))
    return Rehearsal.of(
        compiled.graph,
        compiled.state,
        [make_recordable(tensor) for tensor in inputs],
        compiled.plan,
        groups=session.optimizer.groups,
        group_names=session.optimizer.group_names,
    )


def go_back_to(port: Port, executor: Any, rehearsal: Rehearsal) -> None:
    """Let the device of `executor` be as it was when `rehearsal`, of which nothing has run, was made."""
    port.backend.compiled_step(executor).state.write_back(rehearsal.state)
