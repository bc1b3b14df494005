"""Warn of losses and outputs that are not finite, and of a compilation that took long.

Runners and ported models call it behind a device call.
"""

from __future__ import annotations

import logging
from typing import Tuple

import torch

from ..diagnostics import Finding, caller_place
from ..structure import Structure, flatten_tensors
from .port import PortFindings
from .run_report import ExecutorRecord

__all__ = ["note_loss", "note_outputs", "say_it_took_long"]

_logger = logging.getLogger("porting")

# a call that takes longer makes people wonder; the report has the seconds in any case
_LONG_SECONDS = 2.0


def note_loss(loss: float, record: ExecutorRecord, findings: PortFindings, *, steps_per_call: int) -> None:
    """Warn (L008) of the first call whose loss is NaN or infinite, and keep its number in `record`."""
    if record.first_call_not_finite is None:
        call, where = record.num_calls, f"step {record.num_calls}"
        if steps_per_call > 1:
            where = f"call {call} (steps {(call - 1) * steps_per_call + 1} to {call * steps_per_call})"
        note = "the weights are lost if this step has changed them: load a checkpoint from before"
        _say_not_finite(record, findings, f"the loss is {loss} in {where}", notes=(note,))


def note_outputs(outputs: Structure, record: ExecutorRecord, findings: PortFindings) -> None:
    """Warn (L008) of outputs of an inference that are NaN; infinite ones may be meant, as in masks.

    Outputs are large: those of the calls 1, 2, 4, 8, ... are looked at.
    """
    calls = record.num_calls
    if record.first_call_not_finite is not None or calls & (calls - 1):
        return
    floats = (tensor for tensor in flatten_tensors(outputs) if tensor.is_floating_point())
    if any(bool(torch.isnan(tensor).any()) for tensor in floats):
        _say_not_finite(record, findings, f"an output of the {record.name} is NaN in call {calls}", notes=())


def _say_not_finite(record: ExecutorRecord, findings: PortFindings, message: str, *, notes: Tuple[str, ...]) -> None:
    record.first_call_not_finite = record.num_calls
    findings.say(
        Finding(
            "L008",
            message=message,
            place=caller_place(),
            notes=notes,
            help=(
                "`ported.find_nan(batch)` names module, operator and line where it begins, from the weights before; "
                "`PortOptions(debug_nan=True)` stops the training there",
                "try a lower learning rate, or clip: `to_ipu(..., max_grad_norm=1.0)`",
                "look for `log` and `sqrt` of zero, for divisions by zero, and for such values in the batch",
                "a micro-batch with no label that counts has no mean loss: let the sizes divide the dataset",
            ),
        )
    )


def say_it_took_long(record: ExecutorRecord, seconds: float, owner: str) -> None:
    """Say what a compilation within a call has cost, if anybody noticed."""
    if seconds >= _LONG_SECONDS:
        _logger.warning(
            "the %s graph was %s in %.2f s within its first call (`%s.compile(*batch)` does it beforehand)",
            record.name,
            "loaded from the cache" if record.cache == "hit" else "compiled",
            seconds,
            owner,
        )
