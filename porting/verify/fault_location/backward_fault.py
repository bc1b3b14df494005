"""The fault of a backward pass: what all gradients have in common, or the first operator whose gradient differs."""

from __future__ import annotations

from typing import List, Optional, Sequence

from porting.diagnostics import list_names
from porting.verify.certificate import Location
from porting.verify.fault_location.causes import explain_gradient, find_module
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.fault_search import FaultSearch
from porting.verify.fault_location.gradient_hypotheses import GradientCase, explain_gradients
from porting.verify.fault_location.reproduction import reproduce_gradient
from porting.verify.fault_location.trace_comparison import find_gradient_fault, measure_apart
from porting.verify.fault_location.traced_steps import LOSS, ROOT

__all__ = ["find_backward_fault", "list_wrong_gradients"]


def find_backward_fault(search: FaultSearch) -> Optional[Location]:
    """Return the first gradient that differs: one that all have in common, or one of a value or parameter."""
    evidence = search.evidence
    wrong = list_wrong_gradients(evidence)
    if not wrong:
        return None
    common = explain_gradients(
        GradientCase(
            evidence.step.gradients,
            evidence.gradients,
            evidence.step.own_gradients,
            evidence.ported.options.replicas,
            float(evidence.groups[0].loss_scaling) if evidence.groups else 1.0,
        )
    )
    frozen = _say_frozen(wrong, evidence)
    if common is not None and not frozen:
        reduction = _say_reduction(evidence)
        cause = "; ".join(filter(None, [common.text, reduction]))
        return search.make(
            "backward", ROOT, cause=cause, reproduction=reproduce_gradient(evidence, "", shares=common.shares)
        )
    location = None if frozen else _find_backward_operator(search)
    if location is not None:
        return location
    path = _find_module_of(wrong, evidence)
    intro = f"{evidence.unknown}, and parameters' gradients alone tell the module: " if evidence.unknown else ""
    missing = [name for name in wrong if name not in evidence.gradients]
    fact = f"the port has no gradient of {list_names(missing, most=4)}" if missing else ""
    cause = "; ".join(filter(None, [frozen, fact])) or f"the gradient of {list_names(wrong, most=4)} differs"
    reproduction = reproduce_gradient(evidence, wrong[0], is_cut=wrong[0] in missing)
    return search.make("backward", path, cause=f"{intro}{cause}", reproduction=reproduction)


def list_wrong_gradients(evidence: Evidence) -> List[str]:
    """Name the parameters whose gradient differs, the last one in the order of the forward pass first."""
    wrong = []
    ported = evidence.gradients
    for name, gradient in evidence.step.gradients.items():
        if name not in ported:
            if bool(gradient.any()):
                wrong.append(name)
        elif not measure_apart(gradient, ported[name].to(gradient), evidence.changed.gradients.get(name)).is_rounding:
            wrong.append(name)
    wrong += [name for name, value in ported.items() if name not in evidence.step.gradients and bool(value.any())]
    order = {name: number for number, name in enumerate(_order_by_use(evidence))}
    return sorted(wrong, key=lambda name: -order.get(name, -1))


def _order_by_use(evidence: Evidence) -> List[str]:
    found: List[str] = []
    for record in evidence.step.micro_batches[0].gradients:
        found += [name for name in record.leaves.values() if name]
    return found


def _find_module_of(wrong: Sequence[str], evidence: Evidence) -> str:
    path = wrong[0].rpartition(".")[0]
    return path if path and find_module(path, evidence.plain.model) is not None else ROOT


def _say_frozen(wrong: Sequence[str], evidence: Evidence) -> str:
    frozen = [item for item in evidence.modules if item.name.endswith(".requires_grad")]
    names = [f"{item.owner}.{item.name}".lstrip(".")[: -len(".requires_grad")] for item in frozen]
    names = [name for name in names if name in wrong]
    return f"{list_names(names, most=4)} has another `requires_grad`: it is frozen on one side" if names else ""


def _say_reduction(evidence: Evidence) -> str:
    own, other = evidence.plain.accumulated, evidence.ported.options.reduction
    if own == other:
        return ""
    return f"the port joins gradients as a {other} (`PortOptions(reduction={other!r})`), plain PyTorch as a {own}"


def _find_backward_operator(search: FaultSearch) -> Optional[Location]:
    evidence = search.evidence
    if evidence.replayed is None:
        return None
    count = min(len(evidence.step.micro_batches), len(evidence.replayed.micro_batches))
    for number in range(count):
        seeds = tuple(step.seeds[number] for step in (evidence.step, evidence.replayed, evidence.changed))
        fault = find_gradient_fault(
            evidence.step.micro_batches[number],
            evidence.replayed.micro_batches[number],
            evidence.changed.micro_batches[number],
            seeds=(seeds[0], seeds[1], seeds[2]),
        )
        if fault is None or fault.plain is None:
            continue
        extra = fault.extra
        record = fault.plain if extra is None else extra
        path = record.origin.module
        cause = explain_gradient(fault, fault.plain.origin.module, evidence)
        parameter = next(iter(fault.parameters), "") or list_wrong_gradients(evidence)[0]
        is_cut = fault.is_cut or parameter not in evidence.gradients
        return search.make(
            "backward",
            path or LOSS,
            operator=fault.plain.node if extra is None else extra.name,
            place=record.origin.place,
            cause=cause,
            reproduction=reproduce_gradient(evidence, parameter, is_cut=is_cut),
        )
    return None
