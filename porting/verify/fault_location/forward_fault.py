"""The fault of a forward pass or its loss: the first operator that differs, or what happened to labels and loss."""

from __future__ import annotations

import math
from typing import Optional, Sequence

from porting.torch_insides.modules import LOSSES
from porting.verify.certificate import Location
from porting.verify.fault_location.causes import explain_value, find_module
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.fault_search import FaultSearch, name_phase
from porting.verify.fault_location.loss_hypotheses import LossCase, LossExplanation, explain_loss
from porting.verify.fault_location.reproduction import reproduce_loss, reproduce_value
from porting.verify.fault_location.trace_comparison import find_value_fault
from porting.verify.fault_location.traced_steps import LOSS

__all__ = ["find_forward_fault", "find_loss_fault"]


def find_forward_fault(search: FaultSearch) -> Optional[Location]:
    """Return the first operator whose values differ in the replay of any micro-batch."""
    evidence = search.evidence
    if evidence.replayed is None:
        return None
    sides = zip(evidence.step.micro_batches, evidence.replayed.micro_batches, evidence.changed.micro_batches)
    for plain, ported, changed in sides:
        fault = find_value_fault(plain, ported, changed)
        if fault is None:
            continue
        record = fault.ported or fault.plain
        assert record is not None
        path = record.origin.module
        phase = "loss" if _is_loss(path, evidence) else "forward"
        cause = explain_value(fault, path, evidence)
        if phase == "loss":
            explained = _explain_losses(search)
            cause = "; ".join(filter(None, [cause, explained.text]))
            reproduction = reproduce_loss(evidence, plain, explained.code)
            reproduction = reproduction or reproduce_value(fault, path, evidence, plain)
        else:
            reproduction = reproduce_value(fault, path, evidence, plain)
        return search.make(
            phase,
            path or LOSS,
            operator=record.name,
            place=record.origin.place or (fault.plain.origin.place if fault.plain is not None else None),
            cause=cause,
            reproduction=reproduction,
        )
    return None


def _is_loss(path: str, evidence: Evidence) -> bool:
    module = find_module(path, evidence.plain.model)
    return path in (LOSS, "") or isinstance(module, LOSSES)


def _explain_losses(search: FaultSearch) -> LossExplanation:
    plain, ported = search.losses
    if len(plain) != len(ported) or all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-9) for a, b in zip(plain, ported)):
        return LossExplanation("")
    case = LossCase(search.evidence.micro_batches, plain, ported, search.evidence.random_state)
    return explain_loss(search.evidence.plain, case) or LossExplanation("")


def find_loss_fault(search: FaultSearch) -> Optional[Location]:
    """Explain a call whose losses differ although its replay, if there is one, computes plain PyTorch's."""
    evidence = search.evidence
    plain, ported = search.losses
    if len(plain) != len(ported) or all(_are_close(a, b, search) for a, b in zip(plain, ported)):
        return None
    case = LossCase(evidence.micro_batches, plain, ported, evidence.random_state)
    found = explain_loss(evidence.plain, case)
    settings = "; ".join(map(str, evidence.loss))
    around = evidence.unknown or _AROUND
    cause = "; ".join(filter(None, [settings, found.text if found is not None else "", around]))
    is_data = found is not None and found.is_data
    phase = "data" if is_data else ("forward" if name_phase(search.first.kind) == "forward" and not found else "loss")
    trace = evidence.step.micro_batches[0]
    reproduction = reproduce_loss(evidence, trace, "" if found is None else found.code)
    return search.make(phase, LOSS, cause=cause or _say_losses(plain, ported), reproduction=reproduction)


_AROUND = (
    "replayed operator by operator on the same batch, the captured step computes plain PyTorch's loss: what a call "
    "gets, or what runs it, differs"
)


def _are_close(one: float, other: float, search: FaultSearch) -> bool:
    first = search.first
    allowed = 1e-5
    if name_phase(first.kind) == "loss" and first.scale and math.isfinite(first.band):
        allowed = max(allowed, first.band / first.scale)
    return math.isclose(one, other, rel_tol=allowed, abs_tol=1e-9)


def _say_losses(plain: Sequence[float], ported: Sequence[float]) -> str:
    return f"the loss is {ported[0]:.6g} in the port and {plain[0]:.6g} in plain PyTorch"
