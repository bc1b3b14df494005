"""Dumps of every format show the computation order, and other formats are refused."""

from __future__ import annotations

import dataclasses

import pytest

from porting.diagnostics import ExecutableError
from porting.exports.dumps import FORMATS, dump_graph


@pytest.mark.parametrize("form", ["text", "json", "dot"])
def test_segments_of_a_computation_order_are_shown(step, form):
    ordered = dataclasses.replace(step, computation_order="dummy2")

    assert b"segment" not in dump_graph(step, form)
    assert b"segment" in dump_graph(ordered, form)


def test_an_unknown_format_is_an_error_that_lists_the_known_ones(linear):
    with pytest.raises(ExecutableError) as raised:
        dump_graph(linear, "png")

    assert raised.value.code == "E028"
    assert all(form in raised.value.finding.help[0] for form in FORMATS)
