"""Search a step for the first operator that differs, or for its loss, gradients, buffers or update.

`location` goes through these in the order of a step.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch

from porting.diagnostics import join_names
from porting.torch_insides.modules import LOSSES
from porting.verify.certificate import Location
from porting.verify.fault_location.cases import Case
from porting.verify.fault_location.evidence import Evidence, find_module
from porting.verify.fault_location.hypotheses import explain, iter_causes
from porting.verify.fault_location.reproduction import reproduce_fault, reproduce_module
from porting.verify.fault_location.setting_differences import SettingDifference
from porting.verify.fault_location.trace_comparison import (
    ValueFault,
    find_extra_operator,
    find_value_fault,
    measure_apart,
)
from porting.verify.fault_location.traced_steps import LOSS, ROOT, StateParts, StepTrace, Tensors

__all__ = [
    "find_backward_fault",
    "find_buffer_fault",
    "find_forward_fault",
    "find_loss_fault",
    "find_update_fault",
    "locate_value",
]

_AROUND = (
    "replayed operator by operator on the same batch, the captured step computes plain PyTorch's loss: what a call "
    "gets, or what runs it, differs"
)
_BESIDE = (
    "the step itself, replayed operator by operator, leaves plain PyTorch's value of `{}`: something beside the step "
    "writes it, before or after the call"
)
_MEANINGS = {
    "lr": "learning rates differ",
    "weight_decay": "weight decay differs",
    "momentum": "momentum differs",
    "dampening": "dampening of the momentum differs",
    "nesterov": "one side uses Nesterov's momentum",
    "eps": "the optimizer's `eps` differs",
    "class": "the optimizers are of other kinds",
    "parameter": "the optimizers have other parameters",
    "max_grad_norm": "gradients are clipped on one side only, or to another norm",
}


def _join_words(*words: str) -> str:
    return "; ".join(filter(None, words))


def _join_differences(differences: Sequence[SettingDifference]) -> str:
    more = [f"{len(differences) - 4} more"] if len(differences) > 4 else []
    return "; ".join([*map(str, differences[:4]), *more])


# -- forward and loss --------------------------------------------------------------------------------------------------


def find_forward_fault(evidence: Evidence) -> Optional[Location]:
    """Return the first operator whose values differ in the replay of any micro-batch."""
    if evidence.replayed is None:
        return None
    sides = (evidence.step, evidence.replayed, evidence.changed)
    faults = (find_value_fault(*traces) for traces in zip(*(side.micro_batches for side in sides)))
    fault = next(filter(None, faults), None)
    if fault is None:
        return None
    path = fault.record.origin.module
    is_loss = path in (LOSS, "") or isinstance(find_module(path, evidence.plain.model), LOSSES)
    found = locate_value(fault, evidence, "loss" if is_loss else "forward")
    return replace(found, cause=_join_words(found.cause, *_explain_losses(evidence)[:1])) if is_loss else found


def locate_value(fault: ValueFault, evidence: Evidence, phase: str) -> Location:
    """Return where a value differs first, and why."""
    path = fault.record.origin.module
    places = [side.origin.place for side in (fault.record, fault.plain) if side is not None]
    return evidence.locate(
        phase,
        path or LOSS,
        operator=fault.record.name,
        place=next(filter(None, places), None),
        cause=_explain_value(fault, path, evidence),
        reproduction=reproduce_fault(fault, path or LOSS, evidence),
    )


def _explain_value(fault: ValueFault, path: str, evidence: Evidence) -> str:
    differences = evidence.list_settings(path)
    results = [{fault.record.name: value} for side in (fault.plain, fault.ported) if side for value in side.results[:1]]
    names = [fault.record.name] if len(results) == 2 else []
    results = results if names else [{}, {}]
    case = Case(results[0], results[1], names, evidence, path=path, fault=fault)
    words = []
    if differences:
        owner = differences[0].owner or ROOT
        kind = type(find_module(owner, evidence.plain.model)).__name__
        name = "the loss" if path in (LOSS, "") else f"`{evidence.name_module(owner)}` ({kind})"
        words.append(f"{name} has other settings: {_join_differences(differences)}")
    if not differences or any(item.name in ("forward", "loss") for item in differences):
        words.append(explain("structure", case))
    return _join_words(*words) or explain("operator", case)


def _explain_losses(evidence: Evidence) -> Sequence[str]:
    """Return what explains the losses, and "data" where samples are left out; nothing where they are the same."""
    plain, ported = evidence.step.losses, evidence.losses
    allowed = 1e-5
    if "loss" in evidence.first.kind and evidence.first.scale and math.isfinite(evidence.first.band):
        allowed = max(allowed, evidence.first.band / evidence.first.scale)
    pairs = zip(plain, ported)
    if len(plain) != len(ported) or all(math.isclose(*pair, rel_tol=allowed, abs_tol=1e-9) for pair in pairs):
        return ()
    losses = [{"loss": torch.tensor(side, dtype=torch.float64)} for side in (plain, ported)]
    case = Case(losses[0], losses[1], ["loss"], evidence, tolerance=1e-4)
    labels, samples = list(iter_causes("labels", case)), list(iter_causes("samples", case))
    words = ", or ".join([*labels, *samples]) or explain("loss", replace(case, tolerance=1e-3))
    return words, "data" if samples and not labels else "loss"


def find_loss_fault(evidence: Evidence) -> Optional[Location]:
    """Explain a call whose losses differ although its replay, if there is one, computes plain PyTorch's."""
    explained = _explain_losses(evidence)
    if not explained:
        return None
    words, phase = explained
    is_output = not words and "output" in evidence.first.kind
    around = evidence.unknown if evidence.unknown or evidence.handed else _AROUND
    cause = _join_words(_join_differences(evidence.loss), words, evidence.handed, around)
    return evidence.locate("forward" if is_output else phase, LOSS, cause=cause)


# -- backward ----------------------------------------------------------------------------------------------------------


def find_backward_fault(evidence: Evidence) -> Optional[Location]:
    """Return the first gradient that differs: one that all have in common, or one of a value or parameter."""
    wrong = _list_wrong_gradients(evidence)
    if not wrong:
        return None
    plain, ported = evidence.step.gradients, evidence.gradients
    frozen = [f"{item.owner}.{item.name}".lstrip(".") for item in evidence.modules if "requires_grad" in item.name]
    frozen = [name for name in wrong if f"{name}.requires_grad" in frozen]
    common = [name for name in plain if name in ported and bool(plain[name].any())]
    cause = "" if frozen or not common else explain("gradient", Case(plain, ported, common, evidence))
    if cause:
        ours, theirs = evidence.plain.accumulated, evidence.ported.options.reduction
        joined = (
            f"the port joins gradients as a {theirs} (`PortOptions(reduction={theirs!r})`), plain PyTorch as a {ours}"
        )
        return evidence.locate("backward", ROOT, cause=_join_words(cause, joined if ours != theirs else ""))
    found = None if frozen else _find_backward_operator(wrong, evidence)
    if found is not None:
        return found
    path = wrong[0].rpartition(".")[0]
    missing = [name for name in wrong if name not in ported]
    cause = _join_words(
        evidence.handed,
        f"{evidence.unknown}, and parameters' gradients alone tell the module" if evidence.unknown else "",
        f"{join_names(frozen, most=4)} has another `requires_grad`: it is frozen on one side" if frozen else "",
        f"the port has no gradient of {join_names(missing, most=4)}" if missing else "",
        "" if frozen or missing else f"the gradient of {join_names(wrong, most=4)} differs",
    )
    return evidence.locate("backward", path if find_module(path, evidence.plain.model) and path else ROOT, cause=cause)


def _list_wrong_gradients(evidence: Evidence) -> List[str]:
    """Name the parameters whose gradient differs, those of the last modules first."""
    wrong, plain, ported = [], evidence.step.gradients, evidence.gradients
    for name in {**plain, **ported}:
        one, other = plain.get(name), ported.get(name)
        if one is None or other is None:
            is_wrong = any(bool(side.any()) for side in (one, other) if side is not None)
        else:
            is_wrong = not measure_apart(one, other.to(one), evidence.changed.gradients.get(name)).is_rounding
        wrong += [name] if is_wrong else []
    used = [record.origin.module for record in evidence.step.micro_batches[0].values]
    order = {module: number for number, module in enumerate(used)}
    return sorted(wrong, key=lambda name: -order.get(name.rpartition(".")[0] or ROOT, -1))


def _find_backward_operator(wrong: Sequence[str], evidence: Evidence) -> Optional[Location]:
    """Return the first operator of the backward pass that differs, or what the port alone runs in the forward one."""
    if evidence.replayed is None:
        return None
    sides = (evidence.step, evidence.replayed, evidence.changed)
    traces, seeds = list(zip(*(side.micro_batches for side in sides))), zip(*(side.seeds for side in sides))
    faults = (find_value_fault(*own, seeds=of) for own, of in zip(traces, seeds))
    fault, extra = next(filter(None, faults), None), find_extra_operator(*traces[0][:2])
    missing = [name for name in wrong if name not in evidence.gradients]
    if fault is not None and extra is not None and not missing:
        # what cuts nothing off, such as a `detach` of a constant, has its gradients elsewhere
        around = (extra, *(traces[0][1].values[number] for number in extra.sources))
        extra = extra if fault.record.origin.module in {one.origin.module for one in around} else None
    record = fault.record if extra is None and fault is not None else extra
    if record is None:
        return None
    words, path = f"the gradient of {join_names(wrong, most=4)} differs", record.origin.module
    if missing:
        words = f"the port has no gradient of {join_names(missing, most=4)}"
    elif fault is not None:
        case = Case(evidence=evidence, path=fault.record.origin.module, fault=fault)
        words = f"{words}; {explain('derivative', case)}"
    alone = ""
    if extra is not None:
        place = f" at {extra.origin.place}" if extra.origin.place is not None else ""
        effect = ", which cuts the graph: no gradient goes through it" if extra.name == "aten.detach" else ""
        alone = f"only the port runs `{extra.name}`{place}{effect}"
    cause = _join_words(words, alone, _join_differences(evidence.list_settings(path)))
    return evidence.locate("backward", path or LOSS, operator=record.name, place=record.origin.place, cause=cause)


# -- what the step leaves ----------------------------------------------------------------------------------------------


def _agrees_in_replay(evidence: Evidence, kind: str, name: str) -> bool:
    """Tell whether a replay of the step leaves what plain PyTorch does."""
    if evidence.replayed is None:
        return False
    one, other, changed = (getattr(of.after, kind)[name] for of in (evidence.step, evidence.replayed, evidence.changed))
    return measure_apart(one, other.to(one), changed).is_rounding


def find_buffer_fault(evidence: Evidence) -> Optional[Location]:
    """Return the first buffer that a step leaves in another state, before all the one that differed first."""
    before, plain = evidence.step.before.buffers, evidence.step.after.buffers
    ported = {name: value.to(plain[name]) for name, value in evidence.after.buffers.items() if name in plain}
    noise = evidence.changed.after.buffers
    # a device may count otherwise where no count is asked for
    asked = [name for name in plain if plain[name].is_floating_point() or name == evidence.first.name]
    wrong = [
        name
        for name in asked
        if name in ported and not measure_apart(plain[name], ported[name], noise[name]).is_rounding
    ]
    if not wrong:
        return None
    name = next((name for name in wrong if name == evidence.first.name), wrong[0])
    path = name.rpartition(".")[0] or ROOT
    if _agrees_in_replay(evidence, "buffers", name):
        return evidence.locate("buffer", path, operator=name, cause=_BESIDE.format(name))
    names = [name, *(one for one in wrong if one != name and (one.rpartition(".")[0] or ROOT) == path)]
    moves = [{one: side[one].double() - before[one].double() for one in names} for side in (plain, ported)]
    cause = explain("whole", Case(plain, ported, [name], evidence))
    cause = cause or explain("buffer", Case(moves[0], moves[1], names, evidence, path=path))
    return evidence.locate(
        "buffer",
        path,
        operator=name,
        cause=_join_words(_join_differences(evidence.list_settings(path)), cause),
        reproduction=reproduce_module(path, evidence, attribute=name.rpartition(".")[2]),
    )


def find_update_fault(evidence: Evidence) -> Optional[Location]:
    """Return how the optimizer's step differs, where the gradients are equal."""
    sides = (evidence.step.before, evidence.step.after), (evidence.before, evidence.after)
    plain, ported, noise = (
        _list_updates(*side) for side in (*sides, (evidence.changed.before, evidence.changed.after))
    )
    wrong = [name for name in plain if name in ported and not _is_same_update(name, evidence, plain, ported, noise)]
    differences = evidence.optimizer
    optimizer = type(evidence.plain.optimizer).__name__
    if not wrong and not differences:
        return _find_state(evidence)
    if differences:
        cause = "; ".join(_say_setting(one, evidence) for one in differences[:4])
        owner = next((one.owner.split(", ")[0] for one in differences if one.owner), "")
    elif _list_wrong_gradients(evidence):
        return None
    else:
        is_beside = all(_agrees_in_replay(evidence, "parameters", name) for name in wrong)
        words = explain("update", Case(plain, ported, wrong, evidence))
        cause = _join_words(_BESIDE.format(wrong[0]) if is_beside else "", words)
        cause = cause or f"the settings of {optimizer} agree, but the update of {join_names(wrong, most=4)} is another"
        owner = wrong[0] if len(wrong) < len(plain) else ""
    return evidence.locate("update", owner.rpartition(".")[0] or ROOT, operator=optimizer, cause=cause)


def _list_updates(before: StateParts, after: StateParts) -> Tensors:
    pairs = ((name, value, before.parameters.get(name)) for name, value in after.parameters.items())
    return {name: value.double() - old.double() for name, value, old in pairs if old is not None}


def _is_same_update(name: str, evidence: Evidence, *updates: Mapping[str, torch.Tensor]) -> bool:
    apart = measure_apart(*(side[name] for side in updates))
    weight = evidence.step.before.parameters[name]
    rounding = 4 * torch.finfo(weight.dtype).eps * float(weight.double().norm())
    return replace(apart, band=apart.band + rounding).is_rounding


def _say_setting(difference: SettingDifference, evidence: Evidence) -> str:
    """Say what differs between the optimizers, and for which parameters."""
    owners: Sequence[str] = difference.owner.split(", ") if difference.owner else ()
    parameters: Dict[str, Any] = dict(evidence.plain.model.named_parameters())
    where = f" for {join_names(owners, most=4)}" if owners else ""
    if owners and all(name.rpartition(".")[2] == "bias" for name in owners):
        where += ", biases alone"
    elif owners and all(name in parameters and parameters[name].dim() <= 1 for name in owners):
        where += ", biases and weights of norms alone"
    return f"{_MEANINGS.get(difference.name, 'settings of the optimizers differ')}{where}: {difference}"


def _find_state(evidence: Evidence) -> Optional[Location]:
    """Return the state of the optimizer that differs though the update is equal."""
    step: StepTrace = evidence.step
    for name, slots in step.after.slots.items():
        for slot, value in slots.items():
            other = evidence.after.slots.get(name, {}).get(slot)
            noise = evidence.changed.after.slots.get(name, {}).get(slot)
            if other is None or measure_apart(value.double(), other.double().reshape(value.shape), noise).is_rounding:
                continue
            cause = f"the optimizer's state `{slot}` of `{name}` differs behind the step, the update does not"
            kind = type(evidence.plain.optimizer).__name__
            return evidence.locate("update", name.rpartition(".")[0] or ROOT, operator=kind, cause=cause)
    return None
