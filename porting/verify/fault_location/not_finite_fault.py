"""Both sides have stopped being finite: no difference between them, but a fault of the training, with its place."""

from __future__ import annotations

from typing import Any

from porting.verify.certificate import Location
from porting.verify.plain_training import MicroBatch

__all__ = ["locate_not_finite"]

_PHASES = {"before": "data"}


def locate_not_finite(ported: Any, call: MicroBatch, *, step: int) -> Location:
    """Return where the first value that is not finite arises, on both sides, in the call.

    The port is in the state before the call, which `find_nan` replays; nothing changes.
    """
    args, kwargs = call
    found = ported.find_nan(kwargs if kwargs else args)
    if found is None:
        cause = f"both sides are not finite since step {step}; a repetition of the step is finite"
        return Location("forward", step, cause=cause)
    module = found.module_path
    operator = "" if found.operator is None else found.operator.name
    where = f", in module `{module}`" if module else ""
    return Location(
        _PHASES.get(found.phase, found.phase),
        step,
        module,
        operator,
        found.place,
        cause=f"both not finite since step {step}{where}: no difference between them; {found.message}",
    )
