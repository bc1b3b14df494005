"""This module compares the time of a step with the least time that this machine would need for its work.

It measures the machine's rates, counts the work of a step, and says which share of the rates each side uses.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple

import torch

__all__ = ["Limits", "MatmulRate", "Rates", "Share", "Work", "count_work", "find_limits", "measure_rates"]

_MATMUL_SIZES = (256, 512, 1024, 2048)
_COPIED_BYTES = 128 * 2**20
_LEAST_RUNS, _RUN_SECONDS = 3, 0.1


@dataclass(frozen=True)
class MatmulRate:
    """Operations a second of the product of two square float32 matrices with `size` rows."""

    size: int
    flops_per_second: float


@dataclass(frozen=True)
class Rates:
    """What this process attains with its threads: operations a second in float32, and bytes read and written a second.

    Of matrices the best size counts. Copies are of memory that no cache holds.
    """

    matmul: Tuple[MatmulRate, ...]
    convolution_flops_per_second: float
    copy_bytes_per_second: float

    @property
    def best_matmul(self) -> MatmulRate:
        """The size of matrices with the highest rate."""
        return max(self.matmul, key=lambda rate: rate.flops_per_second)


@dataclass(frozen=True)
class Work:
    """What a step does as eager PyTorch runs it: operations by torch's formulas, and bytes in and out of operators.

    Convolutions are counted apart from all others. Views read and write nothing.
    """

    matmul_flops: float
    convolution_flops: float
    operator_bytes: float
    num_operators: float


@dataclass(frozen=True)
class Share:
    """Which part of a step's time its operations, or its bytes, would take at the machine's rates."""

    compute: float
    memory: float


@dataclass(frozen=True)
class Limits:
    """Rates, work, and the shares of both sides; `least_seconds` is a step at those rates, by what takes longer.

    None with a `reason` where it was not measured.
    """

    rates: Optional[Rates] = None
    work: Optional[Work] = None
    least_seconds: Optional[float] = None
    eager: Optional[Share] = None
    ported: Optional[Share] = None
    reason: str = ""


def find_limits(rates: Rates, work: Work, *, eager_seconds: float, ported_seconds: float) -> Limits:
    """Compute the least time of a step at these rates, and how close both sides come to it.

    >>> rates = Rates((MatmulRate(512, 100.0),), convolution_flops_per_second=50.0, copy_bytes_per_second=10.0)
    >>> limits = find_limits(rates, Work(100.0, 50.0, 10.0, 3), eager_seconds=4.0, ported_seconds=2.5)
    >>> limits.least_seconds, limits.eager.compute, limits.ported.compute
    (2.0, 0.5, 0.8)
    """
    compute = work.matmul_flops / rates.best_matmul.flops_per_second
    compute += work.convolution_flops / rates.convolution_flops_per_second
    memory = work.operator_bytes / rates.copy_bytes_per_second
    eager, ported = (Share(compute / seconds, memory / seconds) for seconds in (eager_seconds, ported_seconds))
    return Limits(rates, work, max(compute, memory), eager, ported)


# -- rates -------------------------------------------------------------------------------------------------------------


def measure_rates(sizes: Tuple[int, ...] = _MATMUL_SIZES, *, copied_bytes: int = _COPIED_BYTES) -> Rates:
    """Measure the rates that this process attains now, the best of several runs each; it takes about a second."""
    matmul = tuple(MatmulRate(size, 2.0 * size**3 / _time_best(_make_matmul(size))) for size in sizes)
    images, weights = torch.randn(16, 64, 28, 28), torch.randn(64, 64, 3, 3)
    source = torch.ones(copied_bytes // 4)
    target = torch.empty_like(source)
    with torch.no_grad():
        convolved = _time_best(lambda: torch.nn.functional.conv2d(images, weights, padding=1))
    return Rates(
        matmul=matmul,
        convolution_flops_per_second=2.0 * 16 * 28 * 28 * weights.numel() / convolved,
        copy_bytes_per_second=2.0 * copied_bytes / _time_best(lambda: target.copy_(source)),
    )


def _make_matmul(size: int) -> Callable[[], Any]:
    left, right = torch.randn(size, size), torch.randn(size, size)
    made = torch.empty(size, size)
    return lambda: torch.mm(left, right, out=made)


def _time_best(run: Callable[[], Any]) -> float:
    run()
    best, began, num_runs = float("inf"), time.perf_counter(), 0
    while num_runs < _LEAST_RUNS or time.perf_counter() - began < _RUN_SECONDS:
        start = time.perf_counter()
        run()
        best, num_runs = min(best, time.perf_counter() - start), num_runs + 1
    return best


# -- work --------------------------------------------------------------------------------------------------------------


def count_work(call: Callable[[], Any], *, steps: int = 1) -> Work:
    """Count the operations and bytes of one step of `call`, which runs `steps` steps eagerly; it is called twice.

    >>> left, right = torch.ones(2, 3), torch.ones(3, 4)
    >>> count_work(lambda: left @ right)
    Work(matmul_flops=48.0, convolution_flops=0.0, operator_bytes=104.0, num_operators=1.0)
    """
    # on a machine with IPUs there may be a torch that the engines are not for
    counts = importlib.import_module("porting.engines.recompute.operator_counts").count_operators(call)
    return Work(*(number / steps for number in counts))
