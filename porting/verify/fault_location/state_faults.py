"""The fault of what a step leaves behind: buffers, the update of the weights, the optimizer's state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Mapping, Optional, Sequence

import torch

from porting.diagnostics import list_names
from porting.verify.certificate import Location
from porting.verify.fault_location.backward_fault import list_wrong_gradients
from porting.verify.fault_location.buffer_hypotheses import explain_buffer
from porting.verify.fault_location.causes import find_module, say_optimizer_differences, select_differences
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.fault_search import FaultSearch
from porting.verify.fault_location.reproduction import reproduce_buffer, reproduce_update
from porting.verify.fault_location.setting_differences import name_groups
from porting.verify.fault_location.trace_comparison import measure_apart
from porting.verify.fault_location.traced_steps import ROOT
from porting.verify.fault_location.update_hypotheses import UpdateCase, explain_update

__all__ = ["find_buffer_fault", "find_update_fault"]


def find_buffer_fault(search: FaultSearch) -> Optional[Location]:
    """Return the first buffer that a step leaves in another state."""
    evidence = search.evidence
    after = evidence.observed.after.buffers or (evidence.replayed.after.buffers if evidence.replayed else {})
    for name, value in evidence.step.after.buffers.items():
        other = after.get(name)
        if other is None or not value.is_floating_point():
            continue
        if measure_apart(value, other.to(value), evidence.changed.after.buffers.get(name)).is_rounding:
            continue
        path = name.rpartition(".")[0] or ROOT
        module = find_module(path, evidence.plain.model)
        if _agrees_in_replay(evidence, "buffers", name):
            reproduction = reproduce_buffer(evidence, "", name)
            return search.make("buffer", path, operator=name, cause=_BESIDE.format(name), reproduction=reproduction)
        moved = explain_buffer(name, evidence.step.before.buffers, evidence.step.after.buffers, after, module)
        settings = [str(difference) for difference in select_differences(path, evidence)]
        reproduction = reproduce_buffer(evidence, path, name, moved.code)
        cause = "; ".join([*settings, moved.text])
        return search.make("buffer", path, operator=name, cause=cause, reproduction=reproduction)
    return None


_BESIDE = (
    "the step itself, replayed operator by operator, leaves plain PyTorch's value of `{}`: something beside the step "
    "writes it, before or after the call"
)


def _agrees_in_replay(evidence: Evidence, kind: str, name: str) -> bool:
    """Tell whether a replay of the step leaves what plain PyTorch does."""
    if evidence.replayed is None:
        return False
    sides = [getattr(step.after, kind)[name] for step in (evidence.step, evidence.replayed, evidence.changed)]
    return measure_apart(sides[0], sides[1].to(sides[0]), sides[2]).is_rounding


def find_update_fault(search: FaultSearch) -> Optional[Location]:
    """Return how the optimizer's step differs, where the gradients are equal."""
    evidence = search.evidence
    differences = evidence.optimizer
    names = [name for name in evidence.step.after.parameters if name in _updated_by_port(evidence)]
    wrong = _list_wrong_updates(evidence, names)
    settings = say_optimizer_differences(differences, evidence.step.before.parameters) if differences else ""
    numbers = "" if settings or not wrong else (_explain_numbers(evidence, wrong, names) or "")
    if wrong and not settings and all(_agrees_in_replay(evidence, "parameters", name) for name in wrong):
        beside = _BESIDE.format(wrong[0])
        numbers = f"{beside}; {numbers}" if numbers else beside
    if not (settings or numbers or wrong):
        return _find_state(search)
    if not settings and list_wrong_gradients(evidence):
        return None
    owner = _choose_owner(differences, wrong)
    path = owner.rpartition(".")[0] if owner else ROOT
    optimizer = type(evidence.plain.optimizer).__name__
    cause = settings or numbers
    cause = cause or f"the settings of {optimizer} agree, but the update of {list_names(wrong, most=4)} is another"
    return search.make(
        "update",
        path or ROOT,
        operator=optimizer,
        cause=cause,
        reproduction=reproduce_update(evidence, owner or (wrong or names)[0]),
    )


def _choose_owner(differences: Sequence[Any], wrong: Sequence[str]) -> str:
    named = [difference.owner.split(", ")[0] for difference in differences if difference.owner]
    return named[0] if named else (wrong[0] if wrong and not differences else "")


def _updated_by_port(evidence: Evidence) -> Mapping[str, torch.Tensor]:
    if evidence.observed.after.parameters:
        return evidence.observed.after.parameters
    return evidence.replayed.after.parameters if evidence.replayed is not None else {}


def _list_wrong_updates(evidence: Evidence, names: Sequence[str]) -> List[str]:
    after, before = _updated_by_port(evidence), evidence.state_before.parameters
    wrong = []
    for name in names:
        plain, ported = _subtract_weights(evidence.step, name), after[name].double() - before[name].double()
        changed = evidence.changed.after.parameters[name].double() - evidence.changed.before.parameters[name].double()
        apart = measure_apart(plain, ported, changed)
        weight = evidence.step.before.parameters[name]
        rounding = 4 * torch.finfo(weight.dtype).eps * float(weight.double().norm())
        if not replace(apart, band=apart.band + rounding).is_rounding:
            wrong.append(name)
    return wrong


def _subtract_weights(step: Any, name: str) -> torch.Tensor:
    difference: torch.Tensor = step.after.parameters[name].double() - step.before.parameters[name].double()
    return difference


def _explain_numbers(evidence: Evidence, wrong: Sequence[str], names: Sequence[str]) -> Optional[str]:
    after, before = _updated_by_port(evidence), evidence.state_before.parameters
    case = UpdateCase(
        names=wrong,
        plain={name: _subtract_weights(evidence.step, name) for name in names},
        ported={name: after[name].double() - before[name].double() for name in names},
        weights={name: evidence.step.before.parameters[name] for name in names},
        gradients=evidence.step.gradients,
        slots=evidence.step.before.slots,
        optimizer=evidence.plain.optimizer,
        group_names=name_groups(evidence.plain.optimizer, evidence.plain.model),
    )
    return explain_update(case)


def _find_state(search: FaultSearch) -> Optional[Location]:
    """Return the state of the optimizer that differs though the update is equal."""
    evidence = search.evidence
    for name, slots in evidence.step.after.slots.items():
        others = evidence.observed.after.slots.get(name, {})
        for slot, value in slots.items():
            other = others.get(slot)
            noise = evidence.changed.after.slots.get(name, {}).get(slot)
            if other is None or measure_apart(value.double(), other.double().reshape(value.shape), noise).is_rounding:
                continue
            cause = f"the optimizer's state `{slot}` of `{name}` differs behind the step, the update does not"
            return search.make(
                "update", name.rpartition(".")[0] or ROOT, operator=type(evidence.plain.optimizer).__name__, cause=cause
            )
    return None
