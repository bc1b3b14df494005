"""A combined batch is cut as the device cuts it, and a source makes the same workload in any process."""

from __future__ import annotations

import torch
from torch import nn

from porting import PortOptions
from porting.bench.workloads import Source, Workload


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
