"""What a call tells after it has run: losses and outputs that are no numbers, its time; and calls that are refused."""

from __future__ import annotations

import math
from types import FrameType
from typing import Any, Optional, Sequence, Tuple

import torch
from torch import nn

from ..diagnostics import Finding, caller_place
from ..structure import flatten_tensors
from ..torch_insides.modules import find_parallel_module
from .moves import make_wrapper_error
from .port import PortFindings
from .run_report import ExecutorRecord

__all__ = ["count_call", "note_loss", "note_outputs", "refuse_parallel_call"]

# These two ask a module around the port for nothing; while they run they are seen by this.
_DATA_PARALLEL = nn.DataParallel.forward.__code__


# -- losses and outputs that are no numbers ----------------------------------------------------------------------------


def note_loss(loss: Any, record: ExecutorRecord, findings: PortFindings, *, steps_per_call: int) -> None:
    """Warn (L008) of the first call whose loss is NaN or infinite, and keep its number in `record`.

    The loss has come to the host with the call's results, so that a look at it waits for nothing.
    """
    if record.first_call_not_finite is not None:
        return
    # a sum is finite only if each of its parts is
    value = loss.item() if loss.numel() == 1 else loss.double().sum().item()
    if not math.isfinite(value):
        call, where = record.num_calls, f"step {record.num_calls}"
        if steps_per_call > 1:
            where = f"call {call} (steps {(call - 1) * steps_per_call + 1} to {call * steps_per_call})"
        note = "the weights are lost if this step has changed them: load a checkpoint from before"
        _say_not_finite(record, findings, f"the loss is {value} in {where}", notes=(note,))


def note_outputs(outputs: Any, record: ExecutorRecord, findings: PortFindings) -> None:
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


# -- calls -------------------------------------------------------------------------------------------------------------


def refuse_parallel_call(frame: FrameType) -> None:
    """Raise DeviceError D003 if `frame`, which calls a port, belongs to a wrapper for several devices."""
    if frame.f_code is _DATA_PARALLEL or (frame.f_back is not None and frame.f_back.f_code is _DATA_PARALLEL):
        raise make_wrapper_error("DataParallel")
    if find_parallel_module() is not None:
        raise make_wrapper_error("DistributedDataParallel")


def count_call(
    record: ExecutorRecord, seconds: float, *, sent: int, returned: int, times: Optional[Sequence[float]]
) -> None:
    """Count a call that took `seconds` and moved so many bytes.

    `times` are those at which it began to send, had sent, had run and had returned, where the device tells.
    """
    record.num_calls += 1
    record.num_samples += record.samples_per_call or 0
    record.call_seconds += seconds
    record.bytes_to_device += sent
    record.bytes_to_host += returned
    if times is not None:
        entered, started, ended, left = times
        record.host_to_device_seconds = (record.host_to_device_seconds or 0.0) + started - entered
        record.run_seconds = (record.run_seconds or 0.0) + ended - started
        record.device_to_host_seconds = (record.device_to_host_seconds or 0.0) + left - ended
