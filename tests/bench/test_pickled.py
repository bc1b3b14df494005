"""A workload of objects goes to other processes as a file, or says why it cannot."""

from __future__ import annotations

import torch
from torch import nn

import porting
from porting.bench import BenchSettings
from porting.bench.pickled import load, pickled_source

from .conftest import make_workload


def test_what_cannot_be_pickled_has_no_memory_figure_but_a_reason():
    report = porting.bench(
        nn.Linear(4, 3),
        lambda output, label: nn.functional.cross_entropy(output, label),
        (torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)),
        engine="replay",
        settings=BenchSettings(rounds=1, calls_per_turn=1, data=False),
    )

    assert report.memory.eager_bytes is None
    assert "cannot be pickled" in report.memory.reason
    assert "in the process of the port" in report.eager.described


def test_a_workload_is_read_as_it_was_with_another_cache_where_one_is_named(tmp_path):
    source, _reason = pickled_source(make_workload(), tmp_path)

    plain, cold = load(**source.arguments), load(**source.with_cache(str(tmp_path)).arguments)

    assert torch.equal(plain.batch[0], make_workload().batch[0])
    assert (plain.options.cache_dir, str(cold.options.cache_dir)) == (None, str(tmp_path))
