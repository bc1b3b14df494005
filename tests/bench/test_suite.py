"""Every workload of the suite can be made, and has what the cases choose."""

from __future__ import annotations

import pytest

from porting.bench.suite import GROWTH, ORDERS, OVERHEAD, SUITE, WORKLOADS, load
from porting.diagnostics import ExecutableError

# public models need libraries that may be missing, and have tests of their own
OWN = [name for name, entry in WORKLOADS.items() if not entry.needs]


@pytest.mark.parametrize("name", OWN)
def test_a_workload_has_the_batch_that_it_is_measured_with(name):
    workload = load(name, {})

    assert workload.samples_per_step == WORKLOADS[name].batch * workload.micro_batches_per_step
    assert workload.num_parameters > 0
    assert len(workload.optimizer(workload.model.parameters()).param_groups) == 1


def test_choices_become_options():
    workload = load("mushrooms", {"batch": 4, "device_iterations": 3, "accumulation": 2, "engine": "replay"})

    assert (workload.rows, workload.samples_per_step, workload.options.engine) == (24, 8, "replay")


def test_float32_is_asked_of_every_workload():
    assert [name for name, entry in SUITE.items() if not entry.demanded.get("float32")] == []


def test_the_bar_of_overhead_is_measured_on_the_mlp_and_the_cnn_with_both_optimizers():
    barred = {name: load(name, {}) for name, entry in OVERHEAD.items() if entry.demanded}

    assert {f"overhead_{model}_{optimizer}" for model in ("mlp", "cnn") for optimizer in ("sgd", "adam")} <= set(barred)
    assert barred["overhead_mlp_sgd"].num_parameters == 784 * 1000 + 1000 * 1000 + 1000 * 10 + 2010


def test_overhead_is_measured_without_compiled_engines_against_torchs_defaults():
    assert {entry.settings["eager_optimizer"] for entry in OVERHEAD.values()} == {"default"}
    assert [name for name, entry in OVERHEAD.items() if entry.matrix["engine"] != ["replay"]] == []


def test_what_does_not_train_has_no_labels():
    assert [name for name in OWN if load(name, {}).trains != isinstance(load(name, {}).batch, tuple)] == []


@pytest.mark.parametrize("name", ORDERS)
def test_a_workload_is_trained_in_the_order_asked_for(name):
    workload = load(name, {"order": "chen", "batch": 2})

    assert workload.options.computation_order == "chen"
    assert workload.rows == 2


@pytest.mark.parametrize("name", GROWTH)
def test_growth_is_four_sizes_each_twice_the_one_before(name):
    (sizes,) = (values for key, values in GROWTH[name].matrix.items() if key != "engine")

    assert [size / sizes[0] for size in sizes] == [1, 2, 4, 8]


def test_layers_are_those_that_are_asked_for():
    per_layer = 64 * 64 + 64

    assert load("growth_layers", {"layers": 5}).num_parameters == 5 * per_layer


def test_a_workload_whose_layers_are_fixed_refuses_a_number():
    with pytest.raises(ExecutableError, match="the layers of `cnn` are always the same") as caught:
        load("cnn", {"layers": 5})

    assert caught.value.code == "E022"
