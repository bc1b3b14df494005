"""Values that an option does not take are refused, all of them at once."""

from __future__ import annotations

import pytest

from porting.diagnostics import OptionError
from porting.options import PortOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("micro_batch", 0),
        ("accumulation", -1),
        ("replicas", 1.0),
        ("device_iterations", True),
        ("output_every", "2"),
        ("output_mode", "last"),
        ("reduction", None),
        ("precision", "int8"),
        ("precision", ["float16"]),
        ("broadcast_buffers", 1),
        ("seed", -1),
        ("seed", 2**64),
        ("cache_dir", ""),
        ("cache_dir", 3),
        ("engine", ""),
        ("tuning_seconds", 0),
        ("tuning_seconds", True),
        ("tuning_seconds", float("inf")),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(OptionError) as caught:
        PortOptions(**{name: value})

    assert caught.value.code == "P002"
    assert caught.value.finding.message == f"`{name}` is {value!r}"
    assert caught.value.finding.help[0].startswith(f"accepted values of {name}: ")
    assert caught.value.finding.place.file == __file__


def test_all_wrong_values_are_named_at_once():
    with pytest.raises(OptionError) as caught:
        PortOptions(replicas=0, precision="int8", seed="x")

    assert caught.value.finding.notes == ("`replicas` is 0", "`precision` is 'int8'", "`seed` is 'x'")
