"""`find_nan` and `debug_nan`: where a call of a port stops being finite, named by module, operator, line and pass."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import torch

from ..adapters import plain_state_dict
from ..diagnostics import Finding, caller_place
from ..nan_search import NotFinite, NotFiniteError, find_not_finite_on_host, is_not_finite
from ..structure import flatten_tensors
from .port import Port, name_modules
from .rehearsals import go_back_to, rehearse

if TYPE_CHECKING:
    from ..engines.calls.rehearsal import Rehearsal

__all__ = ["KeptCall", "keep_call", "refuse_not_finite", "search_call"]

_REPLAYED = "found by a replay of the call on a copy of the simulator's device: nothing has changed"
_ON_HOST = (
    "found in plain PyTorch on the host, in one micro-batch: an IPU shows no values in between, and its update of the "
    "weights cannot be looked at"
)


@dataclass(frozen=True)
class KeptCall:
    """What there was before a call: on the simulator all of it, on an IPU the weights."""

    rehearsal: Optional[Rehearsal] = None
    weights: Dict[str, torch.Tensor] = field(default_factory=dict)


def keep_call(port: Port, executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> KeptCall:
    """Keep what a search needs, before a call of the compiled `executor` changes it."""
    rehearsal = rehearse(port, executor, args, kwargs)
    if rehearsal is not None:
        return KeptCall(rehearsal)
    return KeptCall(weights={name: value.clone() for name, value in plain_state_dict(port.wrapped).items()})


def search_call(
    port: Port, kept: KeptCall, args: Sequence[Any], kwargs: Mapping[str, Any], *, trains: bool
) -> Optional[NotFinite]:
    """Return the first value of the call `kept` that is not finite, or None; what is kept is used up."""
    if kept.rehearsal is not None:
        replay = importlib.import_module("porting.engines.replay.nan_replay")
        fault, ran_on = replay.find_not_finite(kept.rehearsal), _REPLAYED
    else:
        find_loss: Optional[Callable[[Any], torch.Tensor]] = port.wrapped.loss_of if trains else None
        names = list(name_modules(port))
        fault = find_not_finite_on_host(
            port.wrapped, args, kwargs, names=names, values=kept.weights, find_loss=find_loss
        )
        ran_on = _ON_HOST
    if fault is None:
        return None
    return fault.replace(ran_on=ran_on, place=fault.place or caller_place())


def refuse_not_finite(
    port: Port,
    executor: Any,
    kept: KeptCall,
    result: Any,
    *,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    trains: bool,
) -> None:
    """Raise NotFiniteError L009 when a call that has returned `result` made something not finite.

    That is the loss, a weight, a buffer or the optimizer's state, and in inference an output. On the simulator the
    device then goes back to what it was before the call. Infinities that an output is meant to have are no fault.
    """
    shows = _find_symptom(port, executor, kept, result, trains=trains)
    if shows is None:
        return
    notes: Tuple[str, ...] = ("weights and optimizer's state on the IPU are those behind the call",)
    if kept.rehearsal is not None:
        go_back_to(port, executor, kept.rehearsal)
        notes = ("weights, optimizer's state and random stream are those before the call again",)
    fault = search_call(port, kept, args, kwargs, trains=trains)
    if fault is not None:
        fault = fault.replace(notes=(*fault.notes, f"it shows in {shows}", *notes))
        raise NotFiniteError(fault.to_finding(), fault)
    if trains or any(bool(torch.isnan(tensor).any()) for tensor in flatten_tensors(result)):
        raise NotFiniteError(_make_unexplained(port, executor, shows, notes))


def _make_unexplained(port: Port, executor: Any, shows: str, notes: Tuple[str, ...]) -> Finding:
    step = port.backend.compiled_step(executor)
    engine = "the device" if step is None else f"the engine {step.obtained.variant.label}"
    return Finding(
        "L009",
        message=f"{shows} is not finite behind the call, but the same call is finite when it is replayed",
        place=caller_place(),
        notes=(f"the call was run by {engine}, which rounds in another order", *notes),
        help="`PortOptions(engine='replay')` runs every call as the search does",
    )


def _find_symptom(port: Port, executor: Any, kept: KeptCall, result: Any, *, trains: bool) -> Optional[str]:
    """Name what is not finite behind a call; None if all is."""
    if not trains:
        outputs = flatten_tensors(result)
        return next((f"output {index}" for index, output in enumerate(outputs) if is_not_finite(output)), None)
    if is_not_finite(port.wrapped.loss_of(result)):
        return "the loss"
    if kept.rehearsal is None:
        return None  # a look at the weights would bring them all from the IPU, and the next call's loss shows it
    before = dict(_name_tensors(kept.rehearsal.state))
    after = _name_tensors(port.backend.compiled_step(executor).state)
    return next((name for name, value in after if is_not_finite(value) and _was_finite(before.get(name))), None)


def _was_finite(tensor: Optional[torch.Tensor]) -> bool:
    return tensor is None or not is_not_finite(tensor)


def _name_tensors(state: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    for name, parameter in state.parameters.items():
        yield f"the weight `{name}`", parameter
    for name, buffer in state.buffers[0].items():
        yield f"the buffer `{name}`", buffer
    for name, slots in state.slots.items():
        for slot, value in slots.items():
            yield f"the optimizer's state `{slot}` of `{name}`", value
