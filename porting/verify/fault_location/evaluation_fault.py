"""A port that evaluates otherwise than plain PyTorch, or that changes something when it evaluates."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
from torch import nn

from porting.diagnostics import list_names
from porting.module_attributes import keep_train_modes
from porting.verify.certificate import Location, Measured
from porting.verify.fault_location.setting_differences import compare_modules
from porting.verify.fault_location.step_trace import MicroBatchTrace, keep_part
from porting.verify.fault_location.trace_comparison import find_value_fault
from porting.verify.fault_location.traced_steps import LOSS, ROOT, replay_call, trace_plain_evaluation
from porting.verify.fault_location.training_copies import kept_training, perturb_weights
from porting.verify.plain_training import MicroBatch, PlainTraining, cut_micro_batches

__all__ = ["locate_evaluation"]


def locate_evaluation(plain: PlainTraining, ported: Any, call: MicroBatch, first: Measured) -> Location:
    """Evaluate `call`, the arguments of a training call, on both sides and return where the evaluation differs.

    Both are in the state before the evaluation; the models' modes are as before afterwards.
    """
    was_training = ported.training
    # nothing is accumulated in an evaluation
    args, kwargs = cut_micro_batches(*call, ported.options.accumulation)[0]
    ported.eval()
    try:
        changed = [
            name for name in _find_changes(ported, args, kwargs) if name not in _list_writes(plain, args, kwargs)
        ]
        traces = _trace_both(plain, ported, args, kwargs)
    finally:
        ported.train(was_training)
    if changed:
        path = changed[0].rpartition(".")[0]
        modes = _list_training(ported.model)
        words = f"; {list_names(modes, most=4)} stays in train mode" if modes else ""
        cause = f"an evaluation by the port writes {list_names(changed, most=4)}, which it must not{words}"
        return Location("evaluation", first.step, path or type(plain.model).__name__, changed[0], cause=cause)
    return _describe_evaluation(plain, ported, first, traces)


def _find_changes(ported: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[str]:
    """Name the weights and buffers that an evaluation changes."""
    before = _read_tensors(ported.model)
    ported(*args, **kwargs)
    after = _read_tensors(ported.model)
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    # running statistics first, of which it is that they are forgotten
    return sorted(changed, key=lambda name: "running_" not in name)


def _list_writes(plain: PlainTraining, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[str]:
    """Name the weights and buffers that `forward` itself writes to in an evaluation, in plain PyTorch."""
    with kept_training(plain), keep_train_modes(list(plain.model.modules())):
        plain.model.eval()
        before = _read_tensors(plain.model)
        trace_plain_evaluation(plain, args, kwargs, 1)
        after = _read_tensors(plain.model)
        return [name for name, value in before.items() if not torch.equal(value, after[name])]


def _read_tensors(model: nn.Module) -> Dict[str, torch.Tensor]:
    return {name: keep_part(tensor) for name, tensor in [*model.named_buffers(), *model.named_parameters()]}


def _list_training(model: nn.Module) -> List[str]:
    return [name or type(model).__name__ for name, module in model.named_modules() if module.training]


_Traces = Tuple[MicroBatchTrace, MicroBatchTrace, MicroBatchTrace]


def _trace_both(plain: PlainTraining, ported: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Return the traces of both sides' evaluation, and of plain PyTorch with changed weights; None on hardware."""
    rehearsal = ported.keep_call(*args, **kwargs).rehearsal
    if rehearsal is None:
        return None
    replayed = replay_call(ported, rehearsal)[0].micro_batches[0]
    num_parts = len(rehearsal.plan.micro_batches)
    with kept_training(plain), keep_train_modes(list(plain.model.modules())):
        plain.model.eval()
        own = trace_plain_evaluation(plain, args, kwargs, num_parts)
        perturb_weights(plain, torch.float32)
        changed = trace_plain_evaluation(plain, args, kwargs, num_parts)
    return own, replayed, changed


def _describe_evaluation(plain: PlainTraining, ported: Any, first: Measured, traces: Any) -> Location:
    fault = None if traces is None else find_value_fault(*traces)
    differences = compare_modules(plain.model, ported.model)
    if fault is None:
        words = [str(item) for item in differences[:4]] or [f"the evaluation differs in {first.name}"]
        return Location("evaluation", first.step, cause="; ".join(words))
    record = fault.ported or fault.plain
    assert record is not None
    path = "" if record.origin.module in (ROOT, LOSS) else record.origin.module
    own = [item for item in differences if item.owner == path]
    modes = [item for item in own if item.name == "training"]
    words = [f"in eval mode `{path or type(plain.model).__name__}` differs first, at `{record.name}`"]
    words += ["it is in train mode on one side"] if modes else []
    words += [str(item) for item in own[:4]]
    name = path or type(plain.model).__name__
    return Location("evaluation", first.step, name, record.name, record.origin.place, cause="; ".join(words))
