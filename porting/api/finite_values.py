"""Losses and outputs that are no numbers any more: said once, with the step that they begin in."""

from __future__ import annotations

import math
from typing import Any, Tuple

import torch

from ..diagnostics import Finding, caller_place
from ..structure import flatten_tensors
from .parts import Parts
from .run_report import ExecutorRecord

__all__ = ["note_loss", "note_outputs"]


def note_loss(loss: Any, record: ExecutorRecord, parts: Parts) -> None:
    """Warn (L008) of the first call whose loss is NaN or infinite, and keep its number in `record`.

    The loss has come to the host with the call's results, so that a look at it waits for nothing.
    """
    if record.first_call_not_finite is not None:
        return
    # a sum is finite only if each of its parts is
    value = loss.item() if loss.numel() == 1 else loss.double().sum().item()
    if not math.isfinite(value):
        note = "the weights are lost if this step has changed them: load a checkpoint from before"
        _say(record, parts, f"the loss is {value} in {_steps_of(record, parts)}", notes=(note,))


def note_outputs(outputs: Any, record: ExecutorRecord, parts: Parts) -> None:
    """Warn (L008) of outputs of an inference that are NaN; infinite ones may be meant, as in masks.

    Outputs are large: those of the calls 1, 2, 4, 8, ... are looked at.
    """
    calls = record.num_calls
    if record.first_call_not_finite is not None or calls & (calls - 1):
        return
    floats = (tensor for tensor in flatten_tensors(outputs) if tensor.is_floating_point())
    if any(bool(torch.isnan(tensor).any()) for tensor in floats):
        _say(record, parts, f"an output of the {record.name} is NaN in call {calls}", notes=())


def _say(record: ExecutorRecord, parts: Parts, message: str, *, notes: Tuple[str, ...]) -> None:
    record.first_call_not_finite = record.num_calls
    parts.say(
        Finding(
            "L008",
            message=message,
            place=caller_place(),
            notes=notes,
            help=(
                "try a lower learning rate, or clip: `to_ipu(..., max_grad_norm=1.0)`",
                "look for `log` and `sqrt` of zero, for divisions by zero, and for such values in the batch",
                "a micro-batch with no label that counts has no mean loss: let the sizes divide the dataset",
            ),
        )
    )


def _steps_of(record: ExecutorRecord, parts: Parts) -> str:
    """Number the optimizer steps of the last call, from 1."""
    steps, call = parts.options.device_iterations, record.num_calls
    if steps == 1:
        return f"step {call}"
    return f"call {call} (steps {(call - 1) * steps + 1} to {call * steps})"
