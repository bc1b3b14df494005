"""A matrix is all combinations, and choices become options."""

from __future__ import annotations

from porting.bench.choices import BenchSettings, Choices, apply_choices, expand
from porting.options import PortOptions


def test_a_matrix_is_all_combinations_the_last_key_fastest():
    cases = list(expand({"batch": [8, 16], "precision": ["float32", "mixed"]}, Choices(engine="replay")))

    assert [(case.batch, case.precision, case.engine) for case in cases] == [
        (8, "float32", "replay"),
        (8, "mixed", "replay"),
        (16, "float32", "replay"),
        (16, "mixed", "replay"),
    ]


def test_what_was_chosen_replaces_the_options_and_the_rest_stays():
    options = PortOptions(accumulation=3, replicas=2)

    chosen = apply_choices(options, {"accumulation": 2, "order": "chen", "engine": None}, cache_dir=None)

    assert chosen == PortOptions(accumulation=2, replicas=2, computation_order="chen")


def test_a_first_look_leaves_out_what_takes_other_processes():
    quick = BenchSettings(start_up_runs=3, cold_starts=1, seed=7).quick()

    assert (quick.memory, quick.data, quick.start_up_runs, quick.cold_starts) == (False, False, 0, 0)
    assert (quick.seed, quick.rounds) == (7, 5)
