"""What a loaded program needs to know of its calls, as plain data."""

from __future__ import annotations

import json

import pytest
import torch

from porting.engines.calls.call_plan import CallPlan, ReplicaGroups
from porting.engines.compiled.call_layout import (
    CallLayout,
    ResultsOfRuns,
    TensorSpec,
    describe_layout,
    describe_plan,
    name_argument,
    read_argument_name,
)


@pytest.mark.parametrize("name", ["layer.weight", "odd:name", ""])
def test_the_name_of_an_argument_is_read_as_it_was_written(name):
    assert read_argument_name(name_argument("slot", detail="Accl1", name=name)) == ("slot", "Accl1", name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.bool])
def test_a_spec_travels_as_text(dtype):
    spec = TensorSpec.of(torch.zeros(2, 3, dtype=dtype).t(), name="input:0:")

    assert TensorSpec.from_dict(json.loads(json.dumps(describe_layout(spec)))) == spec


@pytest.mark.parametrize(
    "changed",
    [
        {"iterations": 2},
        {"accumulation": 2},
        {"replicas": 2},
        {"output_mode": "all"},
        {"input_groups": ReplicaGroups(replicas=2, size=2)},
    ],
)
def test_other_micro_batches_or_results_are_other_facts(changed):
    assert describe_plan(CallPlan(**changed)) != describe_plan(CallPlan())


@pytest.mark.parametrize(
    "changed",
    [{"mean_reduction": False}, {"divides_last": True}, {"output_period": 3}, {"input_groups": ReplicaGroups(1)}],
)
def test_what_is_a_number_or_without_effect_is_no_fact(changed):
    assert describe_plan(CallPlan(**changed)) == describe_plan(CallPlan())


def combined(kind, runs, **layout):
    """Combine runs that each return a tensor of rows and a scalar."""
    made = CallLayout("steps", True, {}, {}, (), num_results=2, results=kind, **layout)
    results = ResultsOfRuns(made)
    for number in runs:
        results.add([torch.full((2,), float(number)), torch.tensor(float(number))])
    return [tensor.tolist() for tensor in results.combine()]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("last", [[3.0, 3.0], 3.0]),
        ("sum", [[6.0, 6.0], 6.0]),
        ("join", [[1.0, 1.0, 2.0, 2.0, 3.0, 3.0], [1.0, 2.0, 3.0]]),
    ],
)
def test_runs_are_combined_as_the_layout_says(kind, expected):
    assert combined(kind, [1, 2, 3]) == expected


@pytest.mark.parametrize("kind", ["last", "sum", "join"])
def test_a_result_that_is_constant_comes_back_once(kind):
    assert combined(kind, [5, 5], constant_outputs=frozenset([0, 1])) == [[5.0, 5.0], 5.0]


def test_a_single_run_keeps_its_shapes():
    assert combined("join", [7]) == [[7.0, 7.0], 7.0]
