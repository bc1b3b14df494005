"""A first look measures the steady state alone."""

from __future__ import annotations

from porting.bench.settings import BenchSettings


def test_a_first_look_leaves_out_what_takes_other_processes():
    quick = BenchSettings(start_up_runs=3, cold_starts=1, seed=7).quick()

    assert (quick.memory, quick.data, quick.start_up_runs, quick.cold_starts) == (False, False, 0, 0)
    assert (quick.seed, quick.rounds) == (7, 5)
