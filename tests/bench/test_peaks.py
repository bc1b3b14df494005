"""Peaks are what work takes beyond what there was before it."""

from __future__ import annotations

import sys

import pytest
import torch

from porting.bench.children import measure_memory
from porting.bench.choices import BenchSettings
from porting.bench.peaks import find_own_peak, find_tensor_peak
from porting.bench.workloads import Source

MIB = 1 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system does not forget a peak")
def test_what_was_there_before_is_not_counted():
    before = torch.ones(64 * MIB)
    del before
    held = torch.ones(16 * MIB)

    peaks = find_own_peak(lambda: held.add(1.0))

    assert 60 * MIB <= peaks.peak_bytes <= 80 * MIB
    assert peaks.process_peak_bytes >= 256 * MIB


def test_tensors_that_are_freed_in_between_do_not_add_up():
    def work(_prepared: None) -> None:
        for _time in range(3):
            torch.zeros(2, MIB).sum()

    assert 8 * MIB <= find_tensor_peak(work, prepare=lambda: None).tensor_bytes <= 9 * MIB


def test_work_without_tensors_has_no_figure():
    assert find_tensor_peak(lambda _prepared: None, prepare=lambda: None).tensor_bytes is None


def test_what_the_work_gives_back_makes_room():
    def work(prepared: list) -> None:
        prepared.clear()
        torch.zeros(2, MIB)

    assert find_tensor_peak(work, prepare=lambda: [torch.zeros(1, MIB)]).tensor_bytes == 4 * MIB


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system does not forget a peak")
def test_neither_side_counts_imports_the_model_or_its_data():
    source = Source("porting.bench.suite:load", {"name": "mnist_mlp", "choices": {"engine": "replay"}})
    weights_bytes = 4 * 1_796_010

    memory = measure_memory(source, BenchSettings(threads=1, device="sim"))

    # gradients and both moments
    assert memory.eager_tensor_bytes == pytest.approx(3 * weights_bytes, rel=0.1)
    assert memory.eager_tensor_bytes < memory.eager_bytes < memory.eager_tensor_bytes + 40 * MIB
    assert memory.eager_process_bytes > memory.ported_process_bytes
