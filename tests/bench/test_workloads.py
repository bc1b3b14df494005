"""A combined batch is cut as the device cuts it, and a source makes the same workload in any process."""

from __future__ import annotations

import torch
from torch import nn

import porting
from porting import PortOptions
from porting.bench import BenchSettings
from porting.bench.workloads import Source, Workload, load_pickled, pickle_workload
from tests.bench.conftest import make_workload


def workload_of(batch, **options) -> Workload:
    return Workload(nn.Linear(1, 1), None, batch, options=PortOptions(**options))


def test_rows_go_to_iterations_then_accumulation_then_replicas():
    workload = workload_of(torch.arange(8.0).reshape(8, 1), device_iterations=2, accumulation=2, replicas=2)

    steps = workload.steps(workload.batch)

    assert [[micro.args[0].item() for micro in step] for step in steps] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_has_no_rows_goes_to_every_micro_batch():
    workload = workload_of((torch.ones(4, 1), torch.tensor(7.0)), accumulation=2)

    (step,) = workload.steps(workload.batch)

    assert [micro.args[1].item() for micro in step] == [7.0, 7.0]


def test_each_input_is_cut_by_its_own_rows():
    workload = workload_of((torch.ones(4, 1), torch.arange(6)), accumulation=2)

    (step,) = workload.steps(workload.batch)

    assert [(len(micro.args[0]), micro.args[1].tolist()) for micro in step] == [(2, [0, 1, 2]), (2, [3, 4, 5])]


def test_named_arguments_are_cut_as_well():
    workload = workload_of({"x": torch.ones(4, 1), "more": [torch.zeros(4)]}, accumulation=2)

    (step,) = workload.steps(workload.batch)

    assert [(micro.kwargs["x"].shape[0], micro.kwargs["more"][0].shape[0]) for micro in step] == [(2, 2), (2, 2)]


def test_samples_of_a_step_are_those_of_a_call_over_its_steps():
    assert workload_of(torch.ones(24, 1), device_iterations=3, accumulation=2).samples_per_step == 8


def test_a_source_makes_the_same_weights_every_time():
    source = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {}})

    first, second = source.load(seed=3), source.load(seed=3)

    assert torch.equal(first.model[0].weight, second.model[0].weight)


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
    source, _reason = pickle_workload(make_workload(), tmp_path)

    plain, cold = load_pickled(**source.arguments), load_pickled(**source.with_cache(str(tmp_path)).arguments)

    assert torch.equal(plain.batch[0], make_workload().batch[0])
    assert (plain.options.cache_dir, str(cold.options.cache_dir)) == (None, str(tmp_path))
