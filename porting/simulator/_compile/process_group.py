"""Connect the processes that train one model together, and exchange tensors between them.

Executables add up gradients with it, and PopDist's stand-in joins the group.
"""

from __future__ import annotations

import datetime
import os
import time
from typing import List, Mapping, Optional, Sequence

import torch
from torch import distributed

from ...engines.calls.call_plan import sum_over_processes
from ...support.process import leave_group_at_exit
from .._logging import logger
from ..errors import createPoptorchError, native_error

__all__ = ["ProcessExchange", "connect", "require_reachable"]

_RENDEZVOUS = "PORTING_RENDEZVOUS"
_KIND = "popdist_error"
_SECONDS_TO_END_FIRST = 1.0
# gloo's message for a process that has ended
_CLOSED = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused")


def connect(index: int, size: int) -> None:
    """Join torch's default process group as process `index` of `size`, making it (gloo) if the program has not.

    Waits until all processes have come, for PORTING_EXCHANGE_TIMEOUT seconds at most (1800). Raises `poptorch.Error`
    when the address of the others is unknown, when they do not come, or when there is a group of another size.
    """
    address = require_reachable(index, size)
    if address is None:
        return
    timeout = datetime.timedelta(seconds=_read_timeout_seconds())
    try:
        distributed.init_process_group("gloo", init_method=address, rank=index, world_size=size, timeout=timeout)
        leave_group_at_exit()
    except RuntimeError as error:
        raise native_error(f"process {index} of {size} could not reach the others: {error}", kind=_KIND) from error


def require_reachable(index: int, size: int) -> Optional[str]:
    """Return where this process meets the others, None if it has already; `poptorch.Error` if there is no way."""
    if not distributed.is_available():
        raise createPoptorchError("this build of torch cannot connect processes: torch.distributed is not available")
    if distributed.is_initialized():
        found = distributed.get_rank(), distributed.get_world_size()
        if found != (index, size):
            raise createPoptorchError(
                f"Options.Distributed and torch's process group disagree: this is process {index} of {size} for the "
                f"one and process {found[0]} of {found[1]} for the other"
            )
        return None
    if os.environ.get(_RENDEZVOUS):
        return f"file://{os.environ[_RENDEZVOUS]}"
    if os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT"):
        return "env://"
    raise createPoptorchError(
        f"this is process {index} of {size}, and nothing says where the others are. Start the program with "
        f"`porting run --num-instances {size}` or with torchrun, call torch.distributed.init_process_group('gloo') "
        f"before the model is compiled, or set {_RENDEZVOUS} to a path, new and the same in all processes."
    )


def _read_timeout_seconds() -> float:
    return float(os.environ.get("PORTING_EXCHANGE_TIMEOUT", 1800.0))


class ProcessExchange:
    """Adds up gradients over all processes, and checks once whether they started from the same weights."""

    def __init__(self, index: int, size: int) -> None:
        """Take which process this is."""
        self._index = index
        self._size = size
        self._weights: Mapping[str, torch.Tensor] = {}
        self._is_connected = False

    def watch(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Compare `weights` with those of the other processes before the first step, and warn if they differ."""
        self._weights = weights

    def __call__(self, gradients: Sequence[torch.Tensor]) -> None:
        """Add the other processes' gradients to these, in place; `poptorch.Error` when one ended or does not answer."""
        # As late as this: while one process compiles, the others may have to wait for it.
        try:
            if not self._is_connected:
                connect(self._index, self._size)
                self._compare_weights()
                self._is_connected = True
            sum_over_processes(gradients)
        except RuntimeError as error:
            cause: Optional[RuntimeError] = error
            reason = str(error)
            if any(words in reason for words in _CLOSED):
                # a launcher blames the first process that ends, and the other may still be ending
                time.sleep(_SECONDS_TO_END_FIRST)
                reason, cause = "one of them has ended; what it said itself tells why", None
            elif "timed out" in reason.lower():
                reason, cause = f"one of them did not answer within {_read_timeout_seconds():g} seconds", None
            message = f"process {self._index} of {self._size} cannot exchange gradients with the others: {reason}"
            raise native_error(message, kind=_KIND) from cause

    def _compare_weights(self) -> None:
        # The least and the largest of all processes' numbers are equal only where all of them are.
        weights = self._weights
        if not weights:
            return
        rows = []
        for weight in weights.values():
            # two numbers that differ, in all likelihood, where tensors differ: the second is weighted by place, because
            # weights in another order have the same sum
            values = weight.detach().double().flatten()
            ramp = torch.linspace(1.0, 2.0, values.numel(), dtype=values.dtype)
            rows.append(torch.stack([values.sum(), ramp.dot(values)]))
        # NaN is unequal to itself, and would make all processes differ from all others
        lowest = torch.stack(rows).nan_to_num(0.0)
        highest = lowest.clone()
        distributed.all_reduce(lowest, op=distributed.ReduceOp.MIN)
        distributed.all_reduce(highest, op=distributed.ReduceOp.MAX)
        unequal: List[bool] = (lowest != highest).any(dim=1).tolist()
        different = [name for name, differs in zip(weights, unequal) if differs]
        if different:
            logger.warning(
                "The %d processes of this program start from different weights (%d of %d parameters, such as %s): "
                "their gradients are joined, but each process applies them to weights of its own. Use the same seed "
                "in all processes, or broadcast the weights of one.",
                self._size,
                len(different),
                len(unequal),
                different[0],
            )
