"""Slopes are measured from both sides, in place, and every tensor is put back."""

from __future__ import annotations

import pytest
import torch

from porting import PortingError
from porting.gradient_check.slopes import (
    Slopes,
    complete_gradients,
    find_kink,
    list_outputs,
    name_element,
    refuse_kink,
    weigh_outputs,
)


def make(function, values, *, eps=1e-3, dtype=torch.float64):
    tensor = torch.tensor(values, dtype=dtype)
    return Slopes(lambda: float(function(tensor).sum()), eps), tensor


def test_the_slope_along_an_element_is_the_derivative():
    slopes, x = make(torch.sin, [0.5, 1.0])

    assert slopes.measure(x, 1) == pytest.approx(float(x[1].cos()), rel=1e-6)


def test_the_slope_along_a_direction_is_that_of_all_its_elements():
    slopes, x = make(torch.square, [1.0, 2.0])

    assert slopes.measure(x, torch.tensor([1.0, -1.0], dtype=torch.float64)) == pytest.approx(2.0 - 4.0)


def test_tensors_are_put_back_even_after_an_error():
    slopes, x = make(torch.log, [1e-4, 1.0])

    with pytest.raises(PortingError) as caught:
        slopes.measure(x, 0)

    assert caught.value.code == "V007"
    assert x.tolist() == [1e-4, 1.0]


def test_a_step_that_rounding_loses_is_refused():
    slopes, x = make(torch.sin, [1e8], dtype=torch.float32)

    with pytest.raises(PortingError, match="lost in the rounding"):
        slopes.measure(x, 0)


def test_the_step_of_a_coarse_type_counts_as_long_as_it_was():
    slopes, x = make(lambda value: value * 3, [1.0], eps=1e-2, dtype=torch.float16)

    assert slopes.measure(x, 0) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(("function", "at", "has_kink"), [(torch.relu, 0.0, True), (torch.sin, 0.3, False)])
def test_a_kink_is_where_the_sides_differ_however_small_the_step(function, at, has_kink):
    slopes, x = make(function, [at])

    assert (find_kink(slopes, x, 0) is not None) is has_kink


def test_a_kink_is_refused_with_both_slopes():
    slopes, x = make(torch.relu, [[0.0, 1.0]])

    with pytest.raises(PortingError, match="a kink or a jump") as caught:
        refuse_kink(slopes, x, 0, "input 0")

    assert caught.value.code == "V006"
    assert "along element (0, 0) its slope is 0 on one side and 1 on the other" in str(caught.value)


def test_gradients_are_drawn_away_from_zero_where_none_is_given():
    (gradient,) = complete_gradients(None, [torch.zeros(100)])

    assert gradient is not None
    assert float(gradient.min()) >= 0.5


@pytest.mark.parametrize("given", [torch.ones(3), [torch.ones(2), torch.ones(2)]])
def test_gradients_of_another_shape_or_number_are_refused(given):
    with pytest.raises(PortingError) as caught:
        complete_gradients(given, [torch.zeros(2)])

    assert caught.value.code == "V007"


def test_a_gradient_may_be_none_among_several():
    assert complete_gradients([None, torch.ones(1)], [torch.zeros(2), torch.zeros(1)])[0] is None


def test_outputs_are_the_floating_point_tensors():
    assert [one.dtype for one in list_outputs([torch.ones(1), torch.tensor([1])])] == [torch.float32]
    with pytest.raises(PortingError, match="no floating-point tensor"):
        list_outputs(torch.tensor([1]))


def test_outputs_without_a_gradient_do_not_count():
    assert weigh_outputs([torch.ones(2), torch.ones(2)], [torch.tensor([2.0, 3.0]), None]) == 5.0


def test_an_element_of_a_vector_is_named_as_python_writes_it():
    assert name_element(torch.zeros(3), 2) == "(2,)"
