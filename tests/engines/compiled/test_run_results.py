"""Results of several runs become those of the call."""

from __future__ import annotations

import pytest
import torch

from porting.engines.compiled.call_layout import CallLayout
from porting.engines.compiled.run_results import ResultsOfRuns


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
