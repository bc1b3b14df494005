from __future__ import annotations

import pytest

from porting import ComputeMode
from porting.diagnostics import OptionError


def test_the_numbers_are_those_of_existing_configurations():
    assert [(mode.name, mode.value) for mode in ComputeMode] == [
        ("CPU", 0),
        ("GPU", 1),
        ("DPCPP", 2),
        ("XPU", 3),
        ("HPU", 4),
        ("IPU", 5),
    ]


@pytest.mark.parametrize(
    ("device", "mode", "number"),
    [
        ("ipu:0", ComputeMode.IPU, 0),
        ("native:0", ComputeMode.CPU, 0),
        ("cuda:1", ComputeMode.GPU, 1),
        ("IPU", ComputeMode.IPU, 0),
        (5, ComputeMode.IPU, 0),
        (ComputeMode.HPU, ComputeMode.HPU, 0),
    ],
)
def test_a_device_is_read_from_its_name_or_number(device, mode, number):
    assert ComputeMode.parse(device) == (mode, number)


@pytest.mark.parametrize("device", ["tpu:0", "ipu:", "ipu:-1", "ipu:one", "", 6, True, None])
def test_anything_else_is_refused(device):
    with pytest.raises(OptionError) as refused:
        ComputeMode.parse(device)

    assert refused.value.code == "P002"
    assert "ipu" in str(refused.value)
