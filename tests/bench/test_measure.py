"""Both sides train the same on the same batches, and the report has every figure; no time is asserted here."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import porting
from porting import PortOptions
from porting.bench import BenchSettings
from porting.bench.eager import EagerSide
from porting.bench.measure import measure
from porting.bench.workloads import Source, Workload
from porting.models import make_cnn, make_mlp

from .conftest import QUICK, make_workload

REPLAY = PortOptions(engine="replay")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"device_iterations": 4},
        {"accumulation": 2, "output_mode": "all"},
        {"replicas": 2, "accumulation": 2},
        {"device_iterations": 2, "accumulation": 2, "output_mode": "sum"},
        {"device_iterations": 4, "output_mode": "every_n", "output_every": 2},
        {"accumulation": 2, "reduction": "sum"},
    ],
    ids=str,
)
def test_both_sides_have_the_same_losses(options):
    workload = make_workload(PortOptions(engine="replay", **options))

    report = measure(workload, settings=QUICK)

    assert report.parity.verdict == "pass"
    assert report.parity.num_steps >= 20


SMALL = {
    "MLP": (lambda: make_mlp((6, 8, 10)), (4, 6), torch.optim.Adam),
    "CNN": (lambda: make_cnn(image_size=4), (4, 1, 4, 4), torch.optim.SGD),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("eager_optimizer", ["default", "fused"])
def test_both_sides_have_the_same_losses_whatever_kernels_eager_has(name, eager_optimizer):
    make, shape, optimizer = SMALL[name]
    batch = torch.randn(shape), torch.randint(10, shape[:1])
    workload = Workload(make(), nn.CrossEntropyLoss(), batch, lambda parameters: optimizer(parameters, lr=0.01), REPLAY)

    report = measure(workload, settings=dataclasses.replace(QUICK, eager_optimizer=eager_optimizer))

    assert report.parity.difference <= 1e-5
    assert ("fused" in report.eager.described) == (eager_optimizer == "fused")


def test_at_least_three_calls_are_compared():
    report = measure(make_workload(PortOptions(engine="replay", device_iterations=8), rows=64), settings=QUICK)

    assert (len(report.parity.eager_losses), report.parity.num_steps) == (3, 24)


def test_every_round_has_its_ratio(report):
    sides = report.eager.round_seconds, report.ported.round_seconds

    assert [len(seconds) for seconds in (report.speed_up.rounds, *sides)] == [QUICK.rounds] * 3


def test_two_different_models_are_found_out(monkeypatch):
    from porting.bench import measure as module

    class Careless(module.PortedSide):
        def __init__(self, workload, **settings) -> None:
            super().__init__(workload, **settings)
            with torch.no_grad():
                self.model[0].weight.mul_(1.1)

    monkeypatch.setattr(module, "PortedSide", Careless)

    assert measure(make_workload(), settings=QUICK).parity.verdict == "fail"


def test_the_model_and_its_optimizer_stay_as_they_were():
    workload = make_workload()
    before = {name: value.clone() for name, value in workload.model.state_dict().items()}

    measure(workload, settings=QUICK)

    assert all(torch.equal(value, before[name]) for name, value in workload.model.state_dict().items())
    assert not workload.optimizer.state


def test_the_generator_goes_on_as_if_nothing_had_been_measured():
    before = torch.random.get_rng_state()

    measure(make_workload(), settings=QUICK)

    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.slow
def test_a_dataset_is_what_the_data_path_is_measured_with():
    dataset = TensorDataset(torch.randn(40, 4), torch.zeros(40, dtype=torch.int64))
    settings = BenchSettings(rounds=1, calls_per_turn=1, turn_seconds=0.01, memory=False)

    report = measure(make_workload(), settings=settings, dataset=dataset)

    assert report.eager.data.source == report.ported.data.source == "the given data"


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_objects_are_measured_as_well():
    report = porting.bench(
        nn.Linear(4, 3),
        nn.CrossEntropyLoss(),
        (torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        engine="replay",
        rounds=1,
        calls_per_turn=1,
        memory=False,
    )

    assert (report.name, report.engine, report.parity.verdict) == ("Linear", "replay", "pass")
    assert report.device.is_proven


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_a_label_can_be_named():
    report = porting.bench(
        nn.Linear(4, 3),
        nn.CrossEntropyLoss(),
        {"input": torch.ones(6, 4), "target": torch.zeros(6, dtype=torch.int64)},
        loss_settings={"label": "target"},
        engine="replay",
        settings=QUICK,
    )

    assert report.parity.verdict == "pass"


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_the_eager_side_is_timed_in_a_process_of_its_own(monkeypatch):
    calls, original = [], EagerSide.call

    def call(side):
        calls.append(side)
        return original(side)

    monkeypatch.setattr(EagerSide, "call", call)
    source = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {"engine": "replay"}})

    report = measure(source.load(0), settings=QUICK, source=source)

    assert "process" not in report.eager.described
    assert len(report.eager.round_seconds) == QUICK.rounds
    assert len(calls) == 3  # the comparison's alone


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_where_no_other_process_can_make_it_the_eager_side_is_timed_in_this_one(caplog):
    report = measure(make_workload(), settings=QUICK, source=Source("no_such_module:load", {}))

    assert "in the process of the port" in report.eager.described
    assert "No module named 'no_such_module'" in caplog.text
    assert len(report.eager.round_seconds) == QUICK.rounds


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_memory_and_start_up_are_those_of_processes_of_their_own(monkeypatch):
    # with the bytecode that is there: to make that of all torch anew takes longer than the rest
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")

    report = porting.bench(
        nn.Linear(4, 3),
        nn.CrossEntropyLoss(),
        (torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)),
        engine="replay",
        settings=BenchSettings(rounds=1, calls_per_turn=1, data=False, limits=False, layouts=False, start_up_runs=1),
    )

    assert report.memory.eager_bytes > 0
    assert report.memory.ported_bytes > 0
    assert report.start_up.num_runs == 1
    assert report.start_up.eager_cpu_seconds > 0


def test_the_package_and_its_function_are_the_same_call():
    assert callable(porting.bench)
    with pytest.raises(TypeError, match="model"):
        porting.bench()
