"""No configuration gives a network without layers, channels or classes: it is refused before anything is built."""

from __future__ import annotations

import dataclasses

import pytest

from porting.models import FAMILIES, load

# the only whole numbers that may be 0: tokens that are numbered from 0, and blocks that can be left out
MAY_BE_ZERO = {
    "seq2seq": {"padding", "end"},
    "uresnet2d": {"blocks_per_level", "blocks_deepest", "blocks_final"},
    "uresnet3d": {"blocks_per_level", "blocks_deepest", "blocks_final"},
}


def is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_size_of_a_family_can_be_zero_or_negative(name):
    family = load(name)
    config = family.VARIANTS[family.DEFAULT]
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    sizes = [field for field, value in values.items() if is_number(value)]
    rows = [field for field, value in values.items() if isinstance(value, tuple)]

    for field in sizes:
        with pytest.raises(ValueError, match=r"-1\b"):
            family.build(**{field: -1})
        if field not in MAY_BE_ZERO.get(name, ()):
            with pytest.raises(ValueError, match=r"\b0\b"):
                family.build(**{field: 0})
    for field in rows:
        with pytest.raises(ValueError, match=r"\b0\b"):
            family.build(**{field: (*values[field][:-1], 0)})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("dcgan", {"channels": 4}, "`channels` is 4; it is a multiple of 8"),
        ("resnet", {"width": 0}, "`width` is 0; it is at least 1"),
        ("resnet", {"blocks": (1, 1)}, r"`blocks` is \(1, 1\); it counts the blocks of four stages"),
        ("mlp", {"sizes": (784,)}, r"`sizes` is \(784,\); a layer has at least two"),
        ("bert", {"num_heads": 0}, "`num_heads` is 0; it is at least 1"),
        ("gpt", {"num_heads": 0}, "`num_heads` is 0; it is at least 1"),
        ("seq2seq", {"padding": -1}, "`padding` is -1; it is at least 0"),
    ],
)
def test_what_cannot_be_built_is_said_by_the_name_of_the_field(name, changes, message):
    with pytest.raises(ValueError, match=message):
        load(name).build(**changes)
