"""Differences are collected while two trainings run; the comparison says where they begin."""

from __future__ import annotations

import math

import pytest
import torch

from porting import PortingError
from porting.comparison import Tolerance
from porting.verify.training_comparison import KINDS, Differences

TOLERANCE = Tolerance(1e-3, 1e-6)


def compare(*steps):
    """Compare (kind, step, plain, ported) by one name."""
    differences = Differences(TOLERANCE)
    for kind, step, plain, ported in steps:
        differences.compare(
            kind,
            step,
            {} if plain is None else {"w": torch.tensor(plain)},
            {} if ported is None else {"w": torch.tensor(ported)},
        )
    return differences.summarise(num_calls=1, num_steps=1)


def test_nothing_compared_holds():
    assert compare().holds


def test_what_is_equal_within_the_tolerance_holds():
    comparison = compare(("loss", 1, [1.0, 2.0], [1.0, 2.0005]))

    assert comparison.check() is comparison
    assert comparison.kinds[0].worst.largest == pytest.approx(5e-4, rel=1e-2)


def test_a_difference_begins_in_the_earliest_step_and_there_with_the_first_kind():
    comparison = compare(
        ("update", 2, 1.0, 5.0), ("buffer", 1, 1.0, 2.0), ("loss", 1, 1.0, 1.5), ("gradient", 3, 0.0, 9.0)
    )

    assert (comparison.first.kind, comparison.first.step) == ("loss", 1)
    assert [kind.kind for kind in comparison.kinds] == [
        kind for kind in KINDS if kind in ("loss", "gradient", "update", "buffer")
    ]


def test_what_only_one_side_has_is_a_difference_unless_it_is_zero():
    assert compare(("gradient", 1, [0.0, 0.0], None)).holds
    (kind,) = compare(("gradient", 1, None, [1.0, 0.0])).kinds

    assert (kind.first.largest, kind.first.note) == (math.inf, "only the port has it")


def test_another_shape_is_a_difference():
    assert "shape [2] in the port, [1] in plain PyTorch" in compare(("loss", 1, [1.0], [1.0, 1.0])).first.note


def test_a_floor_is_rounding_whatever_the_tolerance_says():
    differences = Differences(TOLERANCE)

    differences.compare("update", 1, {"w": torch.tensor(1e-5)}, {"w": torch.tensor(3e-5)}, floors={"w": 1e-4})

    assert differences.summarise(num_calls=1, num_steps=1).holds


def test_the_error_points_to_where_a_fault_of_that_kind_lies():
    with pytest.raises(PortingError, match="V001") as caught:
        compare(("buffer", 1, 1.0, 2.0)).check()

    assert caught.value.finding.help == (KINDS["buffer"],)
