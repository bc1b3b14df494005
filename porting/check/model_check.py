"""Look at one model, its loss and a batch for everything that stands between them and an IPU.

`porting.check` is this function, and `porting check` runs it on what a program makes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from .. import simulator
from ..adapters import LossInForward, to_backend_optimizer
from ..adapters.half_ranges import measure_step
from ..adapters.loss_terms import Losses
from ..adapters.stages import require_modules
from ..analysis.half_precision import MeasuredModule, advise_loss_scaling, iter_range_faults
from ..analysis.operator_support import collect_attention, iter_operator_faults
from ..analysis.step_checks import iter_step_faults
from ..api.batch import BatchSignature
from ..capture import StepGraph
from ..capture.second_run import without_trace
from ..capture.users_code import may_run_users_code
from ..diagnostics import Finding, OptionError, PortingError, caller_place, collected_refusals, take_first_line
from ..host_tensors import host_tensors
from ..module_attributes import collect_plain_modules, materialise_lazy_modules
from ..options import PortOptions
from ..structure import make_call_arguments
from .batch_look import BatchLook, cut_micro_batch, is_loader, list_lost_values, zero_labels
from .data_audit import audit_data
from .freeze_search import list_frozen
from .index_ranges import IndexTensors, iter_values_out_of_range, list_index_tensors
from .report import Report
from .step_capture import Arguments, CheckedStep, capture_with_faults, leave_out_repeated, wrap_model

__all__ = ["check"]

_HALVES = ("float16", "mixed")
# for the captures beyond the first
_MOST_SECONDS = 2.0
# of a loader, unless all of an epoch is wanted
_MOST_BATCHES = 64
_MOST_DATA_SECONDS = 3.0


def check(
    model: nn.Module,
    loss: Optional[Losses] = None,
    batch: object = None,
    *,
    optimizer: Optional[torch.optim.Optimizer] = None,
    loader: Optional[Iterable[Any]] = None,
    options: Optional[PortOptions] = None,
    allow_frozen: Sequence[str] = (),
    instances: int = 1,
    whole_epoch: bool = False,
    max_executables: int = 8,
    compile_seconds: Optional[float] = None,
    step_seconds: Optional[float] = None,
    name: str = "the model",
    **loss_settings: Any,
) -> Report:
    """Look at a training step for all that stands between it and an IPU, without training and without a device.

    `loss`, `optimizer` and `loss_settings`, such as `label`, are those of `to_ipu`; `batch` is one batch, `(inputs,
    labels)` or a dictionary, or the `loader` itself, whose first batch is taken unless one is given. The step is
    captured on tensors without values and goes on after each fault, so that all are found at once; weights need no
    memory (`porting.check.light_models`).
    `loader` adds an audit of its data (`porting.check.data_audit`), of its first batches or of a `whole_epoch`, which
    `instances` processes share, with the best buckets of up to `max_executables` executables (`compile_seconds` each,
    `step_seconds` a step), and further captures for the search of frozen values, of which `allow_frozen` names those
    that are meant. With `options` of half precision a copy of the model is run once in float32, to measure what float16
    would have to hold. The model is as it was before, whatever happens.

    Raises OptionError P002 without a batch. All else is in the report, whose findings are in the order of the lines.

    >>> report = check(nn.Linear(4, 2), nn.CrossEntropyLoss(), (torch.ones(3, 4), torch.tensor([0, 1, 0])))
    >>> report.is_clean
    True
    """
    options = PortOptions() if options is None else options
    if loader is None and is_loader(batch):
        batch, loader = None, batch
    look = BatchLook()
    audit = None
    if loader is not None:
        audit = audit_data(
            loader,
            options=options,
            instances=instances,
            max_batches=None if whole_epoch else _MOST_BATCHES,
            max_seconds=None if whole_epoch else _MOST_DATA_SECONDS,
            max_executables=max_executables,
            compile_seconds=compile_seconds,
            step_seconds=step_seconds,
            watch=look.add,
        )
    if batch is None and look.kept:
        arguments: Arguments = look.kept[0]
    elif batch is None:
        remedy = "pass one, `check(model, loss, (x, y))`, or a loader with at least one"
        raise OptionError.at_caller("P002", message="`check` has no batch", help=remedy)
    else:
        arguments = make_call_arguments(batch)
    found: List[Finding] = [*(list_lost_values(arguments) if batch is not None else ()), *look.findings]
    found += () if audit is None else audit.findings
    micro_batch, uncut = cut_micro_batch(arguments, options)
    found += [] if uncut is None else [uncut]
    try:
        forward = wrap_model(model, loss, options, **loss_settings)
        require_modules(model, options)
    except PortingError as error:
        return Report(_place_at_caller([*found, error.finding]), program=name)
    search = _Search(forward, model, loss, options, allowed=allow_frozen)
    found += search.run(micro_batch, look, _name_batches(arguments, look))
    found += _list_optimizer_faults(optimizer, forward)
    if options.precision in _HALVES:
        found += search.look_at_ranges(micro_batch)
    told = [] if audit is None else [f"the loader's data:\n{audit}", *look.facts]
    return Report(_place_at_caller(found), program=name, looked_at=search.looked_at, facts=[*search.facts, *told])


def _place_at_caller(findings: Iterable[Finding]) -> List[Finding]:
    """Give findings that no line of the model is to blame for the line that asked."""
    place = caller_place()
    return [replace(found, place=place) if found.place is None else found for found in findings]


def _name_batches(arguments: Arguments, look: BatchLook) -> Dict[str, IndexTensors]:
    of_loader = {f"batch {number} of the loader": batch for number, batch in enumerate(look.indices, start=1)}
    return {"the batch": list_index_tensors(arguments), **of_loader}


class _Search:
    """One preflight at work; `looked_at` and `facts` are for its report."""

    def __init__(
        self,
        forward: LossInForward,
        model: nn.Module,
        loss: Optional[Losses],
        options: PortOptions,
        *,
        allowed: Sequence[str],
    ) -> None:
        self._forward, self._model, self._loss, self._options = forward, model, loss, options
        self._allowed = (*allowed, *(() if isinstance(options.frozen, str) else options.frozen))
        self._modules = _list_modules(model, loss)
        self.looked_at: List[str] = []
        self.facts: List[str] = []

    def run(self, arguments: Arguments, look: BatchLook, batches: Mapping[str, IndexTensors]) -> List[Finding]:
        """Capture the step, look at its graph, and search for what it would freeze."""
        with without_trace(self._modules):
            materialise_lazy_modules(self._forward, *arguments)
            step = self._capture_step(arguments)
            # what the options allow is none
            faults = [fault for fault in step.faults if fault.slug not in self._options.allow]
            found = [*faults, *self._forward.take_findings()]
            if step.graph is not None:
                num_operators = len(step.graph.operators)
                self.looked_at.append(f"a step of {num_operators} operators")
                # without its end a graph has neither loss nor outputs
                found += iter_step_faults(step.graph, self._model, host_tensors(self._forward))
                found += iter_values_out_of_range(step.graph, batches)
            if step.other_graph is not None:
                found += iter_operator_faults(step.other_graph, attention=collect_attention(self._model))
            if step.failure is not None and not any(fault.code == "C040" for fault in step.faults):
                words = take_first_line(getattr(step.failure, "finding", step.failure), otherwise="no words")
                if not isinstance(getattr(step.failure, "finding", None), Finding):
                    self.facts.append(f"the capture ended early, and what follows was not looked at: {words}")
            if self._options.frozen != "allow" and step.graph is not None:
                found += leave_out_repeated(self._iter_frozen(step.graph, arguments, look), by_line=True)
        return found

    def look_at_ranges(self, arguments: Arguments) -> List[Finding]:
        """Measure the step in float32, and tell what float16 cannot hold."""
        measured: Optional[Sequence[MeasuredModule]] = None
        failure = ""
        # a label that is wrong keeps nothing else from being measured
        for tried in (arguments, zero_labels(arguments)):
            try:
                with without_trace(self._modules):
                    measured = measure_step(self._model, self._loss, tried)
                break
            except Exception as error:  # what is wrong with the model is told by its capture
                failure = failure or f"{type(error).__name__}: {take_first_line(error)}"
        if measured is None:
            reason = failure or "there are no values to measure, or too many"
            self.facts.append(f"ranges were not measured: {reason}")
            return []
        if failure:
            self.facts.append(f"ranges were measured with all labels 0, since those of the batch fail: {failure}")
        self.facts += _tell_ranges(measured)
        return list(iter_range_faults(measured))

    def _capture_step(self, arguments: Arguments, *, mode: str = "training") -> CheckedStep:
        forward = self._forward if mode == "training" else self._forward.for_inference()
        return capture_with_faults(self._model, forward, arguments, mode=mode)

    def _iter_frozen(self, graph: StepGraph, arguments: Arguments, look: BatchLook) -> Iterator[Finding]:
        functions = self._forward.functions
        if not may_run_users_code([module for _prefix, module in self._modules], functions):
            return
        ends = time.monotonic() + _MOST_SECONDS
        batches = [arguments, arguments]
        others = (cut_micro_batch(batch, self._options)[0] for batch in look.kept)
        shapes = str(BatchSignature(*arguments))
        # the same shapes, so that the same operators are asked for
        batches += [batch for batch in others if str(BatchSignature(*batch)) == shapes]
        again = [lambda batch=batch: self._capture_step(batch).graph for batch in batches]
        yield from list_frozen(graph, again, self._modules, allowed=self._allowed, ends=ends)
        if time.monotonic() > ends:
            self.facts.append(f"the search for frozen values was ended after {_MOST_SECONDS:g} s")
            return
        unlabelled: Arguments = (arguments[0][:-1], arguments[1]) if self._loss is not None else arguments
        if not unlabelled[0] and not unlabelled[1]:
            return
        first = self._capture_step(unlabelled, mode="inference").graph
        once = [lambda: self._capture_step(unlabelled, mode="inference").graph]
        yield from list_frozen(first, once, self._modules, allowed=self._allowed, ends=ends)


def _list_optimizer_faults(optimizer: Optional[torch.optim.Optimizer], forward: LossInForward) -> List[Finding]:
    if optimizer is None:
        return []
    with collected_refusals() as found:
        try:
            to_backend_optimizer(optimizer, forward, backend=simulator)
        except PortingError as error:
            found.append(error)
    return [error.finding for error in found]


def _list_modules(model: nn.Module, loss: object) -> List[Tuple[str, nn.Module]]:
    """List the modules whose attributes a run of `forward` may change, with their attributes' prefix."""
    found = list(collect_plain_modules(model).items())
    for name, item in (loss if isinstance(loss, Mapping) else {"": loss}).items():
        function = getattr(item, "function", item)
        if isinstance(function, nn.Module):
            prefix = f"loss.{name}." if name else "loss."
            found += [(prefix + inner, module) for inner, module in collect_plain_modules(function).items()]
    return found


def _tell_ranges(measured: Sequence[MeasuredModule]) -> Iterator[str]:
    values = max(measured, key=lambda module: module.largest_value, default=None)
    gradients = max(measured, key=lambda module: module.largest_gradient, default=None)
    if values is not None:
        yield f"the largest output is {values.largest_value:.4g}, of `{values.name}` (float16 ends at 65,504)"
    if gradients is not None and gradients.largest_gradient > 0:
        yield f"the largest gradient is {gradients.largest_gradient:.4g}, at `{gradients.name}`"
        smallest = min((m for m in measured if m.smallest_gradient > 0), key=lambda module: module.smallest_gradient)
        yield f"the smallest gradient is {smallest.smallest_gradient:.4g}, at `{smallest.name}` (float16 ends at 6e-8)"
    scale = advise_loss_scaling(measured)
    if scale is not None:
        yield f"a loss scaling of up to {scale:,.0f} keeps all gradients within float16"
