"""The captured step of a preflight: one run of the model and its loss that goes on after each fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch
from torch import nn

from .. import simulator
from ..adapters import LossInForward
from ..adapters.loss_terms import Losses
from ..capture import StepGraph, capture_step
from ..diagnostics import Finding, PortingError, collected_refusals, find_raising_frame, take_first_line
from ..module_attributes import keep_train_modes
from ..options import PortOptions
from ..remedies import Remedies
from ..simulator.tracing_state import tracing

__all__ = ["Arguments", "CheckedStep", "capture_with_faults", "leave_out_repeated", "wrap_model"]

Arguments = Tuple[Tuple[Any, ...], Dict[str, Any]]
"""The arguments of a call: by position, and by name."""


@dataclass(frozen=True)
class CheckedStep:
    """What a capture found: the graph as far as it came, the faults, and what ended it before its time, if anything.

    `other_graph` is that of the run with other examples, if there was one.
    """

    graph: Optional[StepGraph]
    faults: Tuple[Finding, ...]
    failure: Optional[Exception] = field(default=None, repr=False)
    other_graph: Optional[StepGraph] = None


def wrap_model(model: nn.Module, loss: Optional[Losses], options: PortOptions, **loss_settings: Any) -> LossInForward:
    """Put the loss into `forward` as `to_ipu` does; OptionError P002 for what does not go together.

    The precision of the options is left out, because it would convert the user's weights.
    """
    remedies = Remedies(without=options.without_remedies, strict=options.strict, backend=simulator)
    return LossInForward(model, loss, backend=simulator, allowed=options.allow, remedies=remedies, **loss_settings)


def capture_with_faults(
    model: nn.Module, forward: LossInForward, arguments: Arguments, *, mode: str = "training"
) -> CheckedStep:
    """Capture the step of `forward`, which is `model` and its loss, on one micro-batch, and go on after each fault.

    A step that reads values is captured twice, the second time with other examples, so that both ways of an `if` are
    looked at. Nothing is computed; what a run of `forward` changes in Python is the caller's to undo.
    """
    step = _capture_once(model, forward, arguments, mode=mode, starts_false=False)
    if any(fault.code == "C001" for fault in step.faults):
        other = _capture_once(model, forward, arguments, mode=mode, starts_false=True)
        faults = [*step.faults, *other.faults]
        if step.failure is not None and other.failure is None:
            # the way that comes further says more
            step, other = other, step
        step = CheckedStep(step.graph, tuple(leave_out_repeated(faults)), step.failure, other.graph)
    return step


def _capture_once(
    model: nn.Module, forward: LossInForward, arguments: Arguments, *, mode: str, starts_false: bool
) -> CheckedStep:
    args, kwargs = arguments
    ends: List[Exception] = []
    # the model itself is no part of the module around it
    modules = [*model.modules(), *forward.modules()]
    graph: Optional[StepGraph] = None
    with collected_refusals() as found, keep_train_modes(modules), torch.inference_mode(False):
        # in training, those in eval mode stay so
        if mode == "inference" or not forward.training:
            forward.train(mode == "training")
        try:
            graph = capture_step(
                forward,
                args,
                kwargs,
                mode=mode,
                prints="unavailable",
                around_forward=tracing,
                host_features="refused",
                failures=ends,
                starts_false=starts_false,
            )
        except Exception as error:  # told as a finding by whoever asked
            ends.append(error)
    faults = [error.finding for error in found]
    failure = ends[0] if ends else None
    if isinstance(failure, PortingError) or isinstance(getattr(failure, "finding", None), Finding):
        faults.append(failure.finding)  # type: ignore[union-attr]
    elif failure is not None and not faults:
        faults.append(_describe_failure(failure))
    faults += graph.findings if graph is not None else ()
    return CheckedStep(graph, tuple(leave_out_repeated(faults)), failure)


def leave_out_repeated(faults: Iterable[Finding], *, by_line: bool = False) -> List[Finding]:
    """List each fault once; one place, or one line, has one fault of a kind, which loops may tell several times."""
    once: Dict[Any, Finding] = {}
    for fault in faults:
        place = fault.place
        where = fault.message if place is None else (place.file, place.line, None if by_line else place.column)
        once.setdefault((fault.code, where), fault)
    return list(once.values())


def _describe_failure(error: Exception) -> Finding:
    raised = find_raising_frame(error)
    words = take_first_line(error, otherwise="it says nothing more")
    return Finding(
        "C040",
        message=f"`forward` fails on this batch: {type(error).__name__}: {words}",
        place=None if raised is None else raised[1],
        label=f"raises {type(error).__name__}",
        help="run it in plain PyTorch on the same batch first: `loss(model(x), y)`",
    )
