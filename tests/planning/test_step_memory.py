"""A step as a planner sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from porting.planning.step_memory import count_device_bytes
from tests.planning.step_chains import chain, operation


def test_values_are_found_by_where_they_are_read_and_kept():
    step = chain(4)

    assert step.collect_values("read_at", 1, 3) == {1, 2}
    assert step.collect_values("kept_at", 0, 4) == {0, 1, 2, 3}
    assert step.kept_bytes == 400


def test_a_module_begins_with_its_first_operator_and_so_do_those_around_it():
    nested = [replace(operation(number), module_path=f"blocks.{number // 2}.layer") for number in range(4)]
    step = replace(chain(4), operations=tuple(nested))

    assert step.begins["blocks"] == step.begins["blocks.0"] == step.begins["blocks.0.layer"] == 0
    assert step.begins["blocks.1"] == 2


def test_outputs_of_modules_are_found_by_name():
    assert chain(4).ends_of(["layer1", "layer3", "nothing"]) == (1, 3)


@pytest.mark.parametrize(
    ("dtype", "width"), [(torch.float16, 2), (torch.float64, 4), (torch.int64, 4), (torch.bool, 1)]
)
def test_a_number_on_the_device_has_at_most_32_bits(dtype, width):
    assert count_device_bytes((3, 5), dtype) == 15 * width
