"""The names of computation orders: an unknown one is refused where it is written."""

from __future__ import annotations

import pytest

from porting.diagnostics import ExecutableError, OptionError
from porting.options import POLICIES, ComputationOrder, PortOptions

UNKNOWN = [
    "sqrt",
    "",
    "chen:",
    "chen:much",
    "gttime:-1",
    "none:5",
    "dummy2:5",
    "custom_",
    "custom_XY1",
    "custom_CB3",
    "chen:nan",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_order_is_an_error_that_lists_the_known_ones(text):
    with pytest.raises(ExecutableError) as raised:
        ComputationOrder.of(text)

    assert raised.value.code == "E026"
    assert all(any(f"`{name}`" in note for note in raised.value.finding.notes) for name in POLICIES)


@pytest.mark.parametrize("text", [*UNKNOWN, None, 3])
def test_options_with_an_unknown_order_are_not_made(text):
    with pytest.raises(OptionError) as raised:
        PortOptions(computation_order=text)

    assert raised.value.code == "P002"
    assert all(f"'{name}'" in raised.value.finding.help[0] for name in POLICIES)
    assert raised.value.finding.place.file == __file__


@pytest.mark.parametrize("text", ["dummy", "chen:64", "gtmem:0.5", "custom_CF0_FFo1_CB"])
def test_options_take_what_a_policy_takes(text):
    assert PortOptions(computation_order=text).computation_order == text
