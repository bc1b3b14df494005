"""A port that evaluates otherwise than plain PyTorch, changes something in it, or saves what it has not."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Sequence

import torch
from torch import nn

from porting.adapters import load_checkpoint
from porting.diagnostics import list_names
from porting.verify.certificate import Location
from porting.verify.fault_location.cases import Case
from porting.verify.fault_location.evidence import Evidence, copy_changed
from porting.verify.fault_location.hypotheses import explain
from porting.verify.fault_location.step_faults import locate_value
from porting.verify.fault_location.step_trace import keep_part
from porting.verify.fault_location.trace_comparison import find_value_fault
from porting.verify.fault_location.traced_steps import ROOT, replay_call, trace_plain_evaluation
from porting.verify.plain_training import MicroBatch, cut_micro_batches

__all__ = ["locate_evaluation", "say_checkpoint"]


def locate_evaluation(evidence: Evidence, call: MicroBatch) -> Location:
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
        cause = f"an evaluation by the port writes {list_names(changed, most=4)}, which it must not"
        cause += f"; {list_names(modes, most=4)} stays in train mode" if modes else ""
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
        words.append(f"no checkpoint has {list_names(unsaved, most=4)}: `register_buffer(..., persistent=False)`")
    cause = "; ".join(words) or f"the evaluation differs in {evidence.first.name}"
    return Location("evaluation", evidence.first.step, cause=cause)


def say_checkpoint(evidence: Evidence, names: Sequence[str]) -> str:
    """Say what is another after it was saved and loaded."""
    return explain("checkpoint", Case(names=names, evidence=evidence))


def _list_saved_wrongly(ported: Any) -> List[str]:
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
