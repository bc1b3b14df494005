"""A configuration is chosen by name, and single fields of it are changed."""

from __future__ import annotations

import pytest

from porting.models.mlp import MLPConfig
from porting.models.variants import configure

VARIANTS = {"plain": MLPConfig((4, 2)), "deep": MLPConfig((4, 4, 4, 2))}


def test_without_changes_it_is_the_variant_itself():
    assert configure(VARIANTS, "deep", {}) == VARIANTS["deep"]


def test_changes_replace_fields_and_leave_the_table_alone():
    assert configure(VARIANTS, "plain", {"sizes": (3, 1)}) == MLPConfig((3, 1))
    assert VARIANTS["plain"] == MLPConfig((4, 2))


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="there is no variant 'flat'; there are 'plain', 'deep'"):
        configure(VARIANTS, "flat", {})


def test_an_unknown_field_is_refused_with_the_known_ones():
    with pytest.raises(TypeError, match="MLPConfig has no field 'size'; it has 'sizes'"):
        configure(VARIANTS, "plain", {"size": 3})
