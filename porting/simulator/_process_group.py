"""The processes that train one model together: which of them this one is, and how they reach one another."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from typing import List, Mapping, NoReturn, Optional, Sequence

import torch
from torch import distributed

from ..engines.gradient_exchange import sum_over_processes
from ._logging import logger
from .errors import createPoptorchError, native_error

__all__ = ["Instance", "ProcessExchange", "connect", "require_reachable", "this_instance"]

_RENDEZVOUS = "PORTING_RENDEZVOUS"
_TIMEOUT = "PORTING_EXCHANGE_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS = 1800.0
_KIND = "popdist_error"
# who starts processes tells each which one it is and how many there are, altogether and on its machine
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)


@dataclass(frozen=True)
class Instance:
    """One of `size` processes, of which `local_size` are on this machine; both indices count from 0."""

    index: int
    size: int
    local_index: int
    local_size: int


def this_instance() -> Instance:
    """Read which process this is from the environment: that of MPI (and poprun) or torchrun's; or a single one.

    >>> this_instance()
    Instance(index=0, size=1, local_index=0, local_size=1)
    """
    for index, size, local_index, local_size in _LAUNCHERS:
        if index in os.environ and size in os.environ:
            numbers = int(os.environ[index]), int(os.environ[size])
            local = int(os.environ.get(local_index, numbers[0])), int(os.environ.get(local_size, numbers[1]))
            return Instance(*numbers, *local)
    return Instance(0, 1, 0, 1)


def connect(index: int, size: int) -> None:
    """Join torch's default process group as process `index` of `size`, making it (gloo) if the program has not.

    Waits until all processes have come, for PORTING_EXCHANGE_TIMEOUT seconds at most (1800). Raises `poptorch.Error`
    when nothing says where the others are, when they do not come, or when there is a group of another size.
    """
    address = require_reachable(index, size)
    if address is None:
        return
    timeout = datetime.timedelta(seconds=_timeout_seconds())
    try:
        distributed.init_process_group("gloo", init_method=address, rank=index, world_size=size, timeout=timeout)
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


def _timeout_seconds() -> float:
    return float(os.environ.get(_TIMEOUT, _DEFAULT_TIMEOUT_SECONDS))


class ProcessExchange:
    """Adds up gradients over all processes, and looks once whether they started from the same weights."""

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
        """Add the other processes' gradients to these, in place; the first time wait for all of them to come.

        Raises `poptorch.Error` when one of them has ended or does not answer in time: none of them waits for ever.
        """
        try:
            if not self._is_connected:
                connect(self._index, self._size)
                self._compare()
                self._is_connected = True
            sum_over_processes(gradients)
        except RuntimeError as error:
            self._fail(error)

    def _compare(self) -> None:
        weights = self._weights
        if not weights:
            return
        lowest = torch.stack([_fingerprint(weight) for weight in weights.values()]).nan_to_num(0.0)
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

    def _fail(self, error: RuntimeError) -> NoReturn:
        raise native_error(
            f"process {self._index} of {self._size} cannot exchange gradients with the others: one of them has ended, "
            f"or did not answer within {_timeout_seconds():g} seconds ({error})",
            kind=_KIND,
        ) from error


def _fingerprint(weight: torch.Tensor) -> torch.Tensor:
    """Return two numbers that differ, in all likelihood, where tensors differ."""
    values = weight.detach().double().flatten()
    return torch.stack([values.sum(), torch.linspace(1.0, 2.0, values.numel(), dtype=values.dtype).dot(values)])
