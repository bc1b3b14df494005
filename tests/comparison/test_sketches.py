"""Sketches are linear, and their distances are those of the tensors."""

from __future__ import annotations

import pytest
import torch

from porting.comparison.sketches import distance_of_sketches, make_sketch

SHAPES = [(7,), (3, 5), (2000,), (300, 200), (70_000, 3), (251 * 256, 2)]


def draw(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sketch_of_a_difference_is_the_difference_of_the_sketches(shape):
    one, other = draw(shape, 1).double(), draw(shape, 2).double()

    difference = make_sketch(one).minus(make_sketch(other))

    torch.testing.assert_close(difference.values, make_sketch(one - other).values, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_a_distance_is_right_within_a_factor_of_two(shape, seed):
    one = draw(shape, seed)
    other = one + 1e-3 * draw(shape, 100 + seed)

    found = distance_of_sketches(make_sketch(one), make_sketch(other))

    true = float((one.double() - other.double()).norm())
    assert true / 2 < found < 2 * true


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.outer(draw((600,), 1), draw((500,), 2)),
        lambda: torch.ones(1024, 1024),
        lambda: torch.eye(900),
        lambda: torch.zeros(400, 251).index_fill_(1, torch.tensor([9]), 2.0),
        lambda: torch.zeros(400, 251).index_fill_(0, torch.tensor([9]), 2.0),
        lambda: draw((64_256, 1), 1).repeat(1, 8).t(),
    ],
)
def test_the_length_of_structured_tensors_is_right_within_a_factor_of_two(make):
    sketch = make_sketch(make())

    assert sketch.norm / 2 < float(sketch.values.norm()) < 2 * sketch.norm
    assert sketch.norm == pytest.approx(float(make().double().norm()))


def test_one_wrong_element_of_many_is_seen():
    one = draw((3000, 100), 1)
    other = one.clone()
    other[1234, 56] += 0.5

    assert distance_of_sketches(make_sketch(one), make_sketch(other)) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("size", [8, 5000])
def test_what_is_not_finite_is_counted_and_left_out(size):
    tensor = torch.ones(size)
    tensor[1], tensor[3] = float("nan"), -float("inf")

    sketch = make_sketch(tensor)

    assert sketch.num_not_finite == 2
    assert sketch.norm == pytest.approx((size - 2) ** 0.5)
    assert sketch.largest == 1.0


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("size", [0, 10, 3000])
def test_every_type_has_a_sketch(dtype, size):
    sketch = make_sketch(torch.ones(size, dtype=dtype))

    assert sketch.norm == pytest.approx(size**0.5)
    assert sketch.numel == size


def test_a_sketch_does_not_change_with_its_tensor():
    tensor = torch.zeros(3, dtype=torch.float64)
    sketch = make_sketch(tensor)
    tensor += 1

    assert sketch.norm == float(sketch.values.norm()) == 0.0
