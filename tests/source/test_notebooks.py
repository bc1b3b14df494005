"""Cells of notebooks become Python, on the same lines and in the same columns."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.source.notebooks import NotebookError, blank_magics, read_cells


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("!pip install timm\nx = 1", "pass\nx = 1"),
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("files = !ls\nx = 1", "files = None\nx = 1"),
        ("model?\nx = 1", "pass\nx = 1"),
        ("?model", "pass"),
        ("for x in y:\n    !echo {x}", "for x in y:\n    pass"),
        ("!pip install \\\n  timm\nx = 1", "pass\n\nx = 1"),
        ("%%time\nx = 1", "\nx = 1"),
        ("\n%%capture out\nx = 1", "\n\nx = 1"),
        ("%%bash\necho 1", "\n"),
        ("%%writefile a.py\nimport torch", "\n"),
    ],
)
def test_magics_become_python_that_does_nothing(cell, python):
    assert blank_magics(cell) == python


def test_a_timed_statement_stays_in_its_columns():
    blanked = blank_magics("%time loss = train()")
    (_zero, assignment) = ast.parse(blanked).body

    assert assignment.col_offset == len("%time ")


def test_cells_are_numbered_as_the_reader_counts_them():
    cells = [{"cell_type": "markdown", "source": "# Title"}, {"cell_type": "code", "source": "x = 1"}]

    assert [(cell.number, cell.text) for cell in read_cells(json.dumps({"cells": cells}).encode())] == [(2, "x = 1")]


def test_a_notebook_of_format_3_is_read():
    sheet = {"cells": [{"cell_type": "code", "input": ["x = 1\n", "y = 2"]}]}

    assert read_cells(json.dumps({"worksheets": [sheet], "nbformat": 3}).encode())[0].text == "x = 1\ny = 2"


@settings(max_examples=200, deadline=None)
@given(
    data=st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["cells", "cell_type", "source", "metadata", "kernelspec", "language", "worksheets"]),
                inner,
            )
        ),
    )
)
def test_any_json_is_cells_or_no_notebook(data):
    try:
        cells = read_cells(json.dumps(data).encode())
    except NotebookError:
        return
    assert all(isinstance(cell.text, str) for cell in cells)
