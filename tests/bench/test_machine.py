"""A machine is told by the facts that decide about speed, and compared by those that stay."""

from __future__ import annotations

import torch

from porting.bench.machine import describe_machine, machine_differences


def test_a_machine_is_told_with_its_cores_and_its_torch():
    machine = describe_machine()

    assert machine["num_cores"] >= 1
    assert machine["torch"] == torch.__version__


def test_how_busy_a_machine_was_makes_it_no_other():
    machine = describe_machine()

    assert machine_differences(machine, {**machine, "load_average": 99.0}) == []
