"""Every workload of the suite can be made, and has what the cells choose."""

from __future__ import annotations

import pytest

from porting.bench.suite import SUITE, load


@pytest.mark.parametrize("name", SUITE)
def test_a_workload_has_the_batch_that_it_is_measured_with(name):
    workload = load(name, {})

    assert workload.samples_per_step == SUITE[name].batch
    assert workload.num_parameters > 0
    assert len(workload.optimizer(workload.model.parameters()).param_groups) == 1


def test_choices_become_options():
    workload = load("mushrooms", {"batch": 4, "device_iterations": 3, "accumulation": 2, "engine": "replay"})

    assert (workload.rows, workload.samples_per_step, workload.options.engine) == (24, 8, "replay")


def test_float32_is_asked_of_every_workload():
    assert [name for name, entry in SUITE.items() if not entry.demanded.get("float32")] == []
