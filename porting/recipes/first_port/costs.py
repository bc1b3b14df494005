"""Measure what a loop on the host costs: time, traffic and memory of a step, next to those of other ports.

Run as `python -m porting.recipes.first_port.costs`. The sides alternate; each one's memory is that of its own process.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import torch
from torch import nn

import porting
from porting import bench
from porting.recipes.first_port.workload import load_images, make_model

BATCH_SIZE = 32
STEPS_A_ROUND = 45
NUM_ROUNDS = 15
# of the longest call: three steps
IMAGES_A_CALL = 96

Train = Callable[[], Any]


def prepare_plain(images: torch.Tensor, labels: torch.Tensor) -> Tuple[Train, Any]:
    """Return a function that trains `STEPS_A_ROUND` steps in plain PyTorch, and no report."""
    model = make_model()
    return _make_loop(model, model, images, labels), None


def prepare_host_loop(images: torch.Tensor, labels: torch.Tensor) -> Tuple[Train, Any]:
    """Return the same with forward and backward pass on the device."""
    model = make_model()
    ported = porting.to_ipu(model, loop="host")
    return _make_loop(model, ported, images, labels), ported.report


def prepare_port(images: torch.Tensor, labels: torch.Tensor, *, steps_a_call: int) -> Tuple[Train, Any]:
    """Return the same with whole steps on the device, `steps_a_call` of them at once."""
    model = make_model()
    options = porting.PortOptions(micro_batch=BATCH_SIZE, device_iterations=steps_a_call)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    ported = porting.to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options)
    rows = BATCH_SIZE * steps_a_call
    return _repeat(STEPS_A_ROUND // steps_a_call, lambda: ported(images[:rows], labels[:rows])), ported.report


def _make_loop(model: nn.Module, called: Any, images: torch.Tensor, labels: torch.Tensor) -> Train:
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.001)

    def train_step() -> None:
        optimizer.zero_grad()
        criterion(called(images[:BATCH_SIZE]), labels[:BATCH_SIZE]).backward()
        optimizer.step()

    return _repeat(STEPS_A_ROUND, train_step)


def _repeat(times: int, call: Train) -> Train:
    def repeat() -> None:
        for _time in range(times):
            call()

    return repeat


SIDES: Dict[str, Callable[[torch.Tensor, torch.Tensor], Tuple[Train, Any]]] = {
    "plain PyTorch": prepare_plain,
    "host loop": prepare_host_loop,
    "port": partial(prepare_port, steps_a_call=1),
    "port, three steps a call": partial(prepare_port, steps_a_call=3),
}


def count_bytes(report: porting.RunReport) -> Tuple[int, int]:
    """Return the bytes to the device and back, of all executors."""
    records = report().executors if report is not None else ()
    return sum(record.bytes_to_device for record in records), sum(record.bytes_to_host for record in records)


def measure_peak(side: str) -> int:
    """Return the bytes that a process takes for one round of this side, beyond those of its imports."""
    command = [sys.executable, "-m", "porting.recipes.first_port.costs", side]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def measure(rounds: int) -> List[Tuple[str, ...]]:
    """Return a row for each side: samples a second with quartiles, bytes moved in a step, memory."""
    images, labels = _load_batch()
    sides = {name: prepare(images, labels) for name, prepare in SIDES.items()}
    for train, _report in sides.values():
        train()
    before = {name: count_bytes(report) for name, (_train, report) in sides.items()}
    timings = bench.time_interleaved(
        {name: train for name, (train, _report) in sides.items()}, rounds=rounds, progress="sides"
    )
    rows = []
    for name, (_train, report) in sides.items():
        wall = timings[name].wall
        rates = [BATCH_SIZE * STEPS_A_ROUND / seconds for seconds in (wall.median, wall.high, wall.low)]
        moved = [now - then for now, then in zip(count_bytes(report), before[name])]
        kib = [f"{number / (rounds * STEPS_A_ROUND) / 1024:,.1f}" if report is not None else "-" for number in moved]
        rates_text = "{:,.0f} ({:,.0f} to {:,.0f})".format(*rates)
        rows.append((name, rates_text, *kib, f"{measure_peak(name) / 2**20:,.0f}"))
    return rows


def _load_batch() -> Tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_set, _test_set, _loader = load_images()
    images, labels = train_set[:IMAGES_A_CALL]
    return images, labels


def main() -> None:
    """Print the table; with the name of a side, train it and print its memory."""
    if sys.argv[1:]:
        images, labels = _load_batch()
        before = bench.find_peak_bytes() or 0
        train, _report = SIDES[sys.argv[1]](images, labels)
        train()
        print((bench.find_peak_bytes() or 0) - before)
        return
    header = ("", "samples/s (quartiles)", "KiB to device", "KiB to host", "memory MiB")
    rows = [header, *measure(NUM_ROUNDS)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:]))]))


if __name__ == "__main__":
    main()
