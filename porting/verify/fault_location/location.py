"""Say where a port first differs from plain PyTorch: the pass, module, operator and line, and why.

A proof that fails asks for it.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

import torch
from torch import nn

from porting.adapters import load_checkpoint
from porting.api.ported_model import PortedModel
from porting.diagnostics import join_names
from porting.verify.certificate import Curves, Location, Measured
from porting.verify.fault_location.cases import Case
from porting.verify.fault_location.evidence import Evidence, MakeCall, Ratios, copy_changed, gather_evidence
from porting.verify.fault_location.hypotheses import explain
from porting.verify.fault_location.step_faults import (
    find_backward_fault,
    find_buffer_fault,
    find_forward_fault,
    find_loss_fault,
    find_update_fault,
    locate_value,
)
from porting.verify.fault_location.step_trace import keep_part
from porting.verify.fault_location.trace_comparison import find_value_fault
from porting.verify.fault_location.traced_steps import ROOT, replay_call, trace_plain_evaluation
from porting.verify.plain_training import MicroBatch, PlainTraining, cut_micro_batches
from porting.verify.records import find_phase

__all__ = ["locate_fault", "say_checkpoint"]

_OTHER_LOOP = "`also` makes another state of the same weights: with another decay, or another number of times"
_BESIDE_STEPS = "no optimizer has `{}`: what the loop does beside its steps changes it, as `also` or `each_epoch`"
_EQUAL_AGAIN = (
    "a repetition of the step from this state shows no difference: it depends on what the run did before, or on what "
    "changes from run to run"
)
_Find = Callable[[Evidence], Optional[Location]]

_IN_ORDER = (find_forward_fault, find_loss_fault, find_backward_fault, find_buffer_fault, find_update_fault)
_WITHOUT_LOSS = tuple(find for find in _IN_ORDER if find is not find_loss_fault)
_FINDERS: Mapping[str, Sequence[_Find]] = {
    "forward": _IN_ORDER,
    "loss": _IN_ORDER,
    # the loss was inside its band then
    "backward": _WITHOUT_LOSS,
    "buffer": (find_forward_fault, find_buffer_fault, *_WITHOUT_LOSS),
    "update": (find_update_fault, *_WITHOUT_LOSS),
}


def locate_fault(
    plain: PlainTraining,
    ported: PortedModel,
    calls: Sequence[MicroBatch],
    *,
    first: Measured,
    curves: Optional[Curves] = None,
    make_call: Optional[MakeCall] = None,
    ratios: Optional[Mapping[str, Ratios]] = None,
) -> Location:
    """Run the call that makes step `first.step` on both sides, and return where `first` comes from.

    Both are in the state before that call. `calls` are the arguments of calls, the first of them that of the step;
    `curves` are those of the certificate, for the learning rates; `make_call` makes a call of the port, given its
    positional and keyword arguments, where that is more than calling it. `ratios` are, by kind, step and name, how many
    times plain PyTorch's the port's gradients and updates are in the whole training. The plain training is as before
    afterwards; the port has made one call.
    """
    phase = find_phase(first.kind)
    evidence = Evidence(plain, ported, first)
    if phase == "schedule":
        return _locate_schedule(evidence, curves or Curves())
    if phase == "evaluation":
        return _locate_evaluation(evidence, calls[0])
    if phase == "data":
        words = f"the port does not see the samples that plain PyTorch sees: {first.name}"
        return Location("data", first.step, cause=_add_note(words, first))
    if phase == "loop":
        return evidence.locate("update", "", operator="also", cause=_say_loop(ported.options.device_iterations))
    if phase == "checkpoint":
        words = f"{say_checkpoint(evidence, [first.name])} ({first.kind})"
        path = first.name.rpartition(" of ")[2].rpartition(".")[0]
        return evidence.locate("update", path, operator=first.name, cause=_add_note(words, first))
    if not math.isfinite(first.scale):
        return _locate_not_finite(evidence, calls[0])
    if not first.step:
        return _locate_start(evidence)
    make = make_call or (lambda args, kwargs: ported(*args, **kwargs))
    evidence = gather_evidence(plain, ported, calls[0], first=first, make_call=make, ratios=ratios)
    found = (find(evidence) for find in _FINDERS[phase])
    return next(filter(None, found), None) or _give_up(phase, evidence)


def _say_loop(steps_per_call: int) -> str:
    """Say what makes other state of equal weights."""
    if steps_per_call > 1:
        return f"the port's loop brings its state forward once a call, which is {steps_per_call} steps; {_OTHER_LOOP}"
    return _OTHER_LOOP


def _add_note(words: str, first: Measured) -> str:
    return f"{words}: {first.note}" if first.note else words


def _locate_schedule(evidence: Evidence, curves: Curves) -> Location:
    """Return how the learning rates differ; where neither side has a schedule, it is the update that does."""
    plain, count = evidence.plain, min(len(curves.plain_rates), len(curves.ported_rates))
    sides = [list(rates[:count]) for rates in (curves.plain_rates, curves.ported_rates)]
    differs = [number for number, (one, other) in enumerate(zip(*sides)) if not math.isclose(one, other, rel_tol=1e-5)]
    if differs:
        rates = [{"rate": torch.tensor(side, dtype=torch.float64)} for side in sides]
        one, other = (side[differs[0]] for side in sides)
        cause = f"in step {differs[0] + 1} the device's learning rate is {other:g}, plain PyTorch's {one:g}"
        cause = f"{cause}: {explain('schedule', Case(rates[0], rates[1], ['rate'], evidence, tolerance=1e-5))}"
    else:
        own, other_ = ([float(group["lr"]) for group in of.optimizer.param_groups] for of in (plain, evidence.ported))
        cause = f"the device's learning rates are {other_}, those of plain PyTorch {own}"
    is_constant = plain.scheduler is None and len(set(sides[1])) == 1
    operator = plain.optimizer if plain.scheduler is None else plain.scheduler
    return evidence.locate("update" if is_constant else "schedule", "", operator=type(operator).__name__, cause=cause)


def _locate_start(evidence: Evidence) -> Location:
    """Return what the port's model has of its own at the start: a tensor of another value, or that one side lacks."""
    first = evidence.first
    path = first.name.rpartition(".")[0]
    sides = [model.state_dict() for model in (evidence.plain.model, evidence.ported.model)]
    case = Case(sides[0], sides[1], [first.name], evidence)
    words = explain("start", case)
    whole = explain("whole", case)
    settings = [str(item) for item in evidence.modules if item.owner == path]
    cause = "; ".join([words, *([whole] if whole else []), *settings[:4], *([first.note] if first.note else [])])
    phase = "buffer" if first.kind == "buffer" else "forward"
    return evidence.locate(phase, path or ROOT, operator=first.name, cause=cause)


def _locate_not_finite(evidence: Evidence, call: MicroBatch) -> Location:
    """Return where the first value that is not finite arises, which is a fault of the training on both sides."""
    args, kwargs = call
    step = evidence.first.step
    found = evidence.ported.find_nan(kwargs if kwargs else args)
    if found is None:
        cause = f"both sides are not finite since step {step}; a repetition of the step is finite"
        return Location("forward", step, cause=cause)
    where = f", in module `{found.module_path}`" if found.module_path else ""
    return Location(
        "data" if found.phase == "before" else found.phase,
        step,
        found.module_path,
        "" if found.operator is None else found.operator.name,
        found.place,
        cause=f"both not finite since step {step}{where}: no difference between them; {found.message}",
    )


def _give_up(phase: str, evidence: Evidence) -> Location:
    """Say what is known where a search of the step finds nothing."""
    first = evidence.first
    path = first.name.rpartition(".")[0] if first.kind not in ("loss", "output", "setting") else ""
    words = [str(item) for item in (*evidence.modules, *evidence.loss, *evidence.optimizer)][:4]
    if first.kind == "setting":
        words.insert(0, f"`{first.name}`: {first.note}")
    trained = {id(weight) for group in evidence.plain.optimizer.param_groups for weight in group["params"]}
    weight = dict(evidence.plain.model.named_parameters()).get(first.name)
    if phase == "update" and weight is not None and id(weight) not in trained:
        words.append(_BESIDE_STEPS.format(first.name))
    return evidence.locate(phase, path, cause="; ".join(words) or _EQUAL_AGAIN)


# -- evaluation --------------------------------------------------------------------------------------------------------


def _locate_evaluation(evidence: Evidence, call: MicroBatch) -> Location:
    """Evaluate `call`, the arguments of a training call, on both sides and return where the evaluation differs.

    Both are in the state before the evaluation; the models' modes are as before afterwards.
    """
    ported = evidence.ported
    was_training = ported.training
    # nothing is accumulated in an evaluation
    args, kwargs = cut_micro_batches(*call, ported.options.accumulation)[0]
    plain = [copy_changed(evidence.plain, dtype) for dtype in (None, torch.float32)]
    for training in plain:
        training.model.eval()
    ported.eval()
    try:
        # on a copy of the device, which the evaluation may change
        rehearsal = ported.keep_call(*args, **kwargs).rehearsal
        before = _read_tensors(ported.model)
        ported(*args, **kwargs)
        changed = _list_others(before, _read_tensors(ported.model))
        modes = [name or type(ported.model).__name__ for name, own in ported.model.named_modules() if own.training]
        parts = cut_micro_batches(args, kwargs, 1 if rehearsal is None else len(rehearsal.plan.micro_batches))
        own_before = _read_tensors(plain[0].model)
        traces = [trace_plain_evaluation(training, parts[0]) for training in plain]
        # what `forward` itself writes to is no fault
        written = _list_others(own_before, _read_tensors(plain[0].model))
        replayed = None if rehearsal is None else replay_call(ported, rehearsal)[0].micro_batches[0]
    finally:
        ported.train(was_training)
    changed = sorted((name for name in changed if name not in written), key=lambda name: "running_" not in name)
    if changed:
        cause = f"an evaluation by the port writes {join_names(changed, most=4)}, which it must not"
        cause += f"; {join_names(modes, most=4)} stays in train mode" if modes else ""
        return evidence.locate("evaluation", changed[0].rpartition(".")[0] or ROOT, operator=changed[0], cause=cause)
    fault = None if replayed is None else find_value_fault(traces[0], replayed, traces[1])
    if fault is not None:
        found = locate_value(fault, evidence, "evaluation")
        return replace(found, cause=f"in eval mode `{found.operator}` differs first: {found.cause}")
    saved = _list_saved_wrongly(ported)
    words = [say_checkpoint(evidence, saved)] if saved else [str(item) for item in evidence.modules[:4]]
    kept = ported.model.state_dict()
    unsaved = [name for name, _buffer in ported.model.named_buffers() if name not in kept]
    if unsaved:
        words.append(f"no checkpoint has {join_names(unsaved, most=4)}: `register_buffer(..., persistent=False)`")
    cause = "; ".join(words) or f"the evaluation differs in {evidence.first.name}"
    return Location("evaluation", evidence.first.step, cause=cause)


def say_checkpoint(evidence: Evidence, names: Sequence[str]) -> str:
    """Say what is another after it was saved and loaded."""
    return explain("checkpoint", Case(names=names, evidence=evidence))


def _list_saved_wrongly(ported: PortedModel) -> List[str]:
    """Name what a checkpoint of the port's has another value of than its model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.pt"
        ported.save(path)
        saved = load_checkpoint(path).model
    return _list_others({name: keep_part(value) for name, value in saved.items()}, _read_tensors(ported.model))


def _read_tensors(model: nn.Module) -> Dict[str, torch.Tensor]:
    return {name: keep_part(tensor) for name, tensor in [*model.named_buffers(), *model.named_parameters()]}


def _list_others(ones: Dict[str, torch.Tensor], others: Dict[str, torch.Tensor]) -> List[str]:
    return [name for name, value in ones.items() if name in others and not torch.equal(value, others[name])]
