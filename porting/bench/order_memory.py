"""Peak memory of training by computation order, each in a process of its own: `python -m porting.bench.order_memory`.

The peak is that of the whole process, as the system counts it: what fits into a machine is decided by that, and not by
the bytes of tensors. `--json FILE` writes a list with a dictionary for each process: `workload`, `order`, `peak_bytes`
and `ratio`, the peak over that of `none`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import torch
from torch import nn

from porting.command_line import count
from porting.options import PortOptions

from .children import run_job
from .settings import BenchSettings
from .suite import load as load_from_suite
from .workloads import Source, Workload

__all__ = ["ORDERS", "WORKLOADS", "OrderPeak", "load", "main", "measure_peaks"]

ORDERS = ("none", "chen", "gttime", "gtmem", "dummy2")
"""The orders that are compared: `none` first, by which the others are measured."""


@dataclass(frozen=True)
class OrderPeak:
    """The peak of a process that trained `workload` in `order`; `ratio` is that peak over the one of `none`."""

    workload: str
    order: str
    peak_bytes: int
    ratio: float


def load(name: str, order: str, rows: Optional[int] = None) -> Workload:
    """Make a workload by its name, to be trained in `order`; `rows` takes the place of its own batch."""
    workload = WORKLOADS[name](rows)
    options = (workload.options or PortOptions()).replace(engine="replay", computation_order=order)
    return dataclasses.replace(workload, options=options)


def measure_peaks(name: str, orders: Sequence[str] = ORDERS, *, rows: Optional[int] = None) -> Iterator[OrderPeak]:
    """Train a workload in each order, `none` first, one process after the other.

    Raises RuntimeError where a process fails, or where the system does not tell its peak.
    """
    plain = _peak_bytes(name, "none", rows)
    yield OrderPeak(name, "none", plain, 1.0)
    for order in orders:
        if order != "none":
            peak = _peak_bytes(name, order, rows)
            yield OrderPeak(name, order, peak, peak / plain)


def _peak_bytes(name: str, order: str, rows: Optional[int]) -> int:
    source = Source("porting.bench.order_memory:load", {"name": name, "order": order, "rows": rows})
    # threads have heaps of their own, and how many there are is another question
    measured = run_job("memory", "ported", source, BenchSettings(threads=1, device="sim"))
    peak: Optional[int] = measured["process_peak_bytes"]
    if peak is None:
        raise RuntimeError("this system does not tell the peak memory of a process")
    return peak


# -- the workloads -----------------------------------------------------------------------------------------------------


def _linear24(rows: Optional[int]) -> Workload:
    """Blocks of 24 MiB, all alike: nothing else is measured than when memory is let go."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(24)))
    batch = tuple(torch.randn(rows or 24_576, 256) for _ in range(2))
    return Workload(model, nn.MSELoss(), batch, lambda parameters: torch.optim.SGD(parameters, lr=0.01))


def _of_suite(name: str) -> Callable[[Optional[int]], Workload]:
    return lambda rows: load_from_suite(name, {} if rows is None else {"batch": rows})


WORKLOADS: Mapping[str, Callable[[Optional[int]], Workload]] = MappingProxyType(
    {"linear24": _linear24, "gpt": _of_suite("gpt"), "uresnet2d": _of_suite("uresnet2d")}
)
"""The workloads by name: 24 linear layers of 256, and two of the suite."""


# -- the command -------------------------------------------------------------------------------------------------------


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Measure and print a row for each process as soon as it has ended."""
    parser = argparse.ArgumentParser(prog="python -m porting.bench.order_memory", description=_DESCRIPTION)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"(default: all) {', '.join(WORKLOADS)}")
    parser.add_argument("--orders", default=",".join(ORDERS), metavar="A,B", help="(default: %(default)s)")
    parser.add_argument("--rows", type=count, metavar="N", help="rows of the batch (default: the workload's)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the peaks")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload `{unknown[0]}`: known are {', '.join(WORKLOADS)}")
    measured: List[Dict[str, object]] = []
    print(f"{'workload':<12}{'order':<12}{'peak MB':>8}{'of none':>9}", flush=True)
    for name in given.workloads or WORKLOADS:
        for peak in measure_peaks(name, given.orders.split(","), rows=given.rows):
            print(f"{name:<12}{peak.order:<12}{peak.peak_bytes / 1e6:>8,.0f}{peak.ratio:>9.2f}", flush=True)
            measured.append(dataclasses.asdict(peak))
    if given.json is not None:
        given.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return 0


_DESCRIPTION = """\
Print the peak memory of processes that train the same model in different computation orders, on one thread.
"""


if __name__ == "__main__":
    raise SystemExit(main())
