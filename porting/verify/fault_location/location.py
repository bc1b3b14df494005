"""`locate_fault`: where a port first differs from plain PyTorch: pass, module, operator and line, and why."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from porting.verify.certificate import Curves, Location, Measured
from porting.verify.fault_location.backward_fault import find_backward_fault
from porting.verify.fault_location.evaluation_fault import locate_evaluation
from porting.verify.fault_location.evidence import MakeCall, gather_evidence
from porting.verify.fault_location.fault_search import FaultSearch, name_phase
from porting.verify.fault_location.forward_fault import find_forward_fault, find_loss_fault
from porting.verify.fault_location.not_finite_fault import locate_not_finite
from porting.verify.fault_location.schedule_fault import locate_schedule
from porting.verify.fault_location.start_fault import locate_start
from porting.verify.fault_location.state_faults import find_buffer_fault, find_update_fault
from porting.verify.plain_training import MicroBatch, PlainTraining

__all__ = ["locate_fault"]


def locate_fault(
    plain: PlainTraining,
    ported: Any,
    calls: Sequence[MicroBatch],
    *,
    first: Measured,
    curves: Optional[Curves] = None,
    make_call: Optional[MakeCall] = None,
) -> Location:
    """Run the call that makes step `first.step` on both sides, and return where `first` comes from.

    Both are in the state before that call. `calls` are the arguments of calls, the first of them that of the step;
    `curves` are those of the certificate, for the learning rates; `make_call` makes a call of the port, given its
    positional and keyword arguments, where that is more than calling it. The plain training is as before afterwards;
    the port has made one call.
    """
    phase = name_phase(first.kind)
    if phase == "schedule":
        return locate_schedule(plain, ported, first, curves or Curves())
    if phase == "evaluation":
        return locate_evaluation(plain, ported, calls[0], first)
    if phase == "data":
        return Location("data", first.step, cause=_say_data(first))
    if "load" in first.kind or "resum" in first.kind:
        return Location(phase, first.step, first.name.rpartition(".")[0], first.name, cause=_say_checkpoint(first))
    if not math.isfinite(first.scale):
        return locate_not_finite(ported, calls[0], step=first.step)
    if not first.step:
        return locate_start(plain, ported, first)
    evidence = gather_evidence(
        plain, ported, calls[0], step=first.step, make_call=make_call or partial(_call_port, ported)
    )
    search = FaultSearch(evidence, first)
    for find in _ORDER[phase]:
        found = find(search)
        if found is not None:
            return found
    return _give_up(phase, search)


def _call_port(ported: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    return ported(*args, **kwargs)


def _say_data(first: Measured) -> str:
    words = f"the port does not see the samples that plain PyTorch sees: {first.name}"
    return f"{words}, {first.note}" if first.note else words


def _say_checkpoint(first: Measured) -> str:
    words = f"`{first.name}` is another after it was saved and loaded ({first.kind})"
    return f"{words}: {first.note}" if first.note else words


def _give_up(phase: str, search: FaultSearch) -> Location:
    """Say what is known where a search of the step finds nothing."""
    first = search.first
    path = first.name.rpartition(".")[0] if first.kind not in ("loss", "output") else ""
    settings = [str(item) for item in (*search.evidence.modules, *search.evidence.loss, *search.evidence.optimizer)]
    cause = "; ".join(settings[:4]) or (
        "a repetition of the step from this state shows no difference: it depends on what the run did before, or on "
        "what changes from run to run"
    )
    return search.make(phase, path, cause=cause)


_Find = Callable[[FaultSearch], Optional[Location]]
_ALL: Tuple[_Find, ...] = (
    find_forward_fault,
    find_loss_fault,
    find_backward_fault,
    find_buffer_fault,
    find_update_fault,
)
_WITHOUT_LOSS = tuple(find for find in _ALL if find is not find_loss_fault)
_ORDER: Mapping[str, Tuple[_Find, ...]] = {
    "forward": _ALL,
    "loss": _ALL,
    # the loss was inside its band then
    "backward": _WITHOUT_LOSS,
    "buffer": (find_forward_fault, find_buffer_fault, *_WITHOUT_LOSS),
    "update": (find_update_fault, *_WITHOUT_LOSS),
}
