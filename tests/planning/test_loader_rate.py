"""A loader is measured by itself, for a bounded time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from porting.planning.loader_rate import measure_loader


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("porting.planning.loader_rate.time.perf_counter", lambda: now.seconds)
    return now


def loader(clock, delays, rows=4):
    for delay in delays:
        clock.seconds += delay
        yield torch.zeros(rows, 3), torch.zeros(rows)


def test_an_endless_loader_is_measured_for_a_second(clock):
    found = measure_loader(loader(clock, itertools.repeat(0.125)))

    assert found.samples_per_second == 4 / 0.125
    assert (found.low, found.high) == (32.0, 32.0)
    assert clock.seconds == 1.0


def test_the_start_of_workers_is_not_counted(clock):
    assert measure_loader(loader(clock, [0.5, 0.1, 0.1])).samples_per_second == pytest.approx(40.0)


def test_a_single_slow_batch_is_enough(clock):
    found = measure_loader(loader(clock, itertools.repeat(8.0)))

    assert (found.samples_per_second, found.num_batches) == (0.5, 1)


def test_a_loader_that_varies_has_a_spread(clock):
    found = measure_loader(loader(clock, [0.1, 0.1, 0.3, 0.1, 0.3]))

    assert found.low < found.samples_per_second < found.high
    assert "4 batches in 0.8 s" in str(found)


@pytest.mark.parametrize("batches", [[], [torch.tensor(1.0)]])
def test_without_rows_nothing_is_measured(batches):
    assert measure_loader(batches) is None


def test_the_random_stream_stays():
    torch.manual_seed(0)
    expected = torch.rand(())
    torch.manual_seed(0)

    measure_loader(torch.rand(2) for _ in range(3))

    assert torch.rand(()) == expected
