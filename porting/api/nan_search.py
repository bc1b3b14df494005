"""Find where a call of a port stops being finite: module, operator, line and pass.

`ported.find_nan` and `PortOptions(debug_nan=True)` use it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import torch

from .. import adapters, nan_search
from ..adapters.backend_protocol import Executor
from ..adapters.optimizer_state import name_parameters
from ..diagnostics import Finding, caller_place
from ..structure import flatten_tensors, rebuild
from .optimizer import PortOptimizer
from .port import Port, name_modules
from .rehearsals import go_back_to, rehearse

if TYPE_CHECKING:
    from ..engines.calls.call_plan import CallPlan, MicroBatch
    from ..engines.calls.device_state import DeviceState
    from ..engines.calls.group_settings import GroupSettings
    from ..engines.calls.rehearsal import Rehearsal
    from ..nan_search import HostTraining, NotFinite

__all__ = ["KeptCall", "keep_call", "refuse_not_finite", "search_call"]

_REPLAYED = "found by a replay of the call on a copy of the simulator's device: nothing has changed"
_ON_HOST = (
    "found in plain PyTorch on the host, from the weights and the optimizer's state of the device, which shows no "
    "values in between"
)


@dataclass(frozen=True)
class KeptCall:
    """What there was before a call: on the simulator all of it, on an IPU the weights and the optimizer.

    `groups` are the settings of the optimizer's parameter groups, `group_names` the parameters of each, and `state` the
    optimizer's state by the device's names; all are empty in inference.
    """

    rehearsal: Optional[Rehearsal] = None
    weights: Dict[str, torch.Tensor] = field(default_factory=dict)
    groups: Sequence[GroupSettings] = ()
    group_names: Sequence[Sequence[str]] = ()
    state: Dict[str, torch.Tensor] = field(default_factory=dict)


def keep_call(
    port: Port, executor: Executor, optimizer: Optional[PortOptimizer], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> KeptCall:
    """Keep what a search needs, before a call of the compiled `executor` changes it; `optimizer` is what trains."""
    rehearsal = rehearse(port, executor, args, kwargs)
    if rehearsal is not None:
        return KeptCall(rehearsal)
    weights = {name: value.clone() for name, value in adapters.plain_state_dict(port.wrapped).items()}
    if optimizer is None:
        return KeptCall(weights=weights)
    names = name_parameters(optimizer.device, port.wrapped)
    groups = _load_module("porting.engines.calls.group_settings").read_settings(optimizer.device)
    return KeptCall(
        weights=weights,
        groups=groups,
        group_names=[[names[id(parameter)] for parameter in group.params] for group in groups],
        state={name: value.clone() for name, value in optimizer.read_device_state().items()},
    )


def search_call(
    port: Port, kept: KeptCall, args: Sequence[Any], kwargs: Mapping[str, Any], *, trains: bool
) -> Optional[NotFinite]:
    """Return the first value of the call `kept` that is not finite, or None; what is kept is used up."""
    if kept.rehearsal is not None:
        replay = _load_module("porting.engines.replay.nan_replay")
        fault, ran_on = replay.find_not_finite(kept.rehearsal), _REPLAYED
    else:
        fault, ran_on = _search_on_host(port, kept, args, kwargs, trains=trains), _ON_HOST
    if fault is None:
        return None
    return fault.replace(ran_on=ran_on, place=fault.place or caller_place())


def _search_on_host(
    port: Port, kept: KeptCall, args: Sequence[Any], kwargs: Mapping[str, Any], *, trains: bool
) -> Optional[NotFinite]:
    calls, options = _load_module("porting.engines.calls.call_plan"), port.options
    plan = calls.CallPlan(
        iterations=options.device_iterations,
        accumulation=options.accumulation if trains else 1,
        replicas=options.replicas,
        mean_reduction=options.reduction == "mean",
    )
    batch = (tuple(args), dict(kwargs))

    def cut(micro_batch: MicroBatch) -> Any:
        # copies: `forward` may write to its inputs
        position, count = micro_batch.position, plan.num_slices
        return rebuild(batch, [calls.cut_rows(rows, position, count).clone() for rows in flatten_tensors(batch)])

    return nan_search.find_not_finite_on_host(
        port.wrapped,
        [[cut(micro_batch) for micro_batch in step] for step in plan.steps],
        names=list(name_modules(port)),
        values=kept.weights,
        training=_make_training(port, kept, plan) if trains else None,
    )


def _make_training(port: Port, kept: KeptCall, plan: CallPlan) -> HostTraining:
    """Return the backward pass and the update that the device makes, by the simulator's arithmetic."""
    updates = _load_module("porting.engines.update.updates")
    slots: Dict[str, Dict[str, torch.Tensor]] = {}
    for key, value in kept.state.items():
        slot, _, name = key.partition("___")
        if name in kept.weights:
            shape = torch.Size() if slot == "Step" else kept.weights[name].shape
            slots.setdefault(name, {})[slot] = value.clone().reshape(shape)
    for settings, names in zip(kept.groups, kept.group_names):
        updates.ensure_slots(settings, names, kept.weights, slots)

    def update(parameters: Mapping[str, torch.Tensor]) -> None:
        updates.apply_update(kept.groups, kept.group_names, parameters, slots)

    return nan_search.HostTraining(
        find_loss=port.wrapped.loss_of,
        update=update,
        groups=kept.groups,
        group_names=kept.group_names,
        slots=slots,
        seed=kept.groups[0].loss_scaling * plan.backward_scale,
    )


def _load_module(name: str) -> Any:
    """Import a module of the engines when it is needed: their package is for captured steps in the main."""
    return importlib.import_module(name)


def refuse_not_finite(
    port: Port,
    executor: Executor,
    kept: KeptCall,
    result: object,
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
        raise nan_search.NotFiniteError(fault.to_finding(), fault)
    if trains or any(bool(torch.isnan(tensor).any()) for tensor in flatten_tensors(result)):
        raise nan_search.NotFiniteError(_make_unexplained(port, executor, shows, notes))


def _make_unexplained(port: Port, executor: Executor, shows: str, notes: Tuple[str, ...]) -> Finding:
    step = port.backend.compiled_step(executor)
    engine = "the device" if step is None else f"the engine {step.obtained.choice.label}"
    return Finding(
        "L009",
        message=f"{shows} is not finite behind the call, but the same call is finite when it is replayed",
        place=caller_place(),
        notes=(f"the call was run by {engine}, which rounds in another order", *notes),
        help="`PortOptions(engine='replay')` runs every call as the search does",
    )


def _find_symptom(port: Port, executor: Executor, kept: KeptCall, result: object, *, trains: bool) -> Optional[str]:
    """Name what is not finite behind a call; None if all is."""
    if not trains:
        outputs = flatten_tensors(result)
        faulty = (f"output {index}" for index, each in enumerate(outputs) if nan_search.is_not_finite(each))
        return next(faulty, None)
    if nan_search.is_not_finite(port.wrapped.loss_of(result)):
        return "the loss"
    if kept.rehearsal is None:
        return None  # a look at the weights would bring them all from the IPU, and the next call's loss shows it
    before = dict(_name_tensors(kept.rehearsal.state))
    after = _name_tensors(port.backend.compiled_step(executor).state)
    faulty = (name for name, value in after if nan_search.is_not_finite(value))
    return next((name for name in faulty if name not in before or not nan_search.is_not_finite(before[name])), None)


def _name_tensors(state: DeviceState) -> Iterator[Tuple[str, torch.Tensor]]:
    for name, parameter in state.parameters.items():
        yield f"the weight `{name}`", parameter
    for name, buffer in state.buffers[0].items():
        yield f"the buffer `{name}`", buffer
    for name, slots in state.slots.items():
        for slot, value in slots.items():
            yield f"the optimizer's state `{slot}` of `{name}`", value
