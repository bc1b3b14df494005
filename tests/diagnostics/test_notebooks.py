"""A place in a notebook is named by its cell, and an uncaught error shows its finding first."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from porting.diagnostics import Finding, Place, PortingError, render
from porting.diagnostics.notebooks import name_cell


@pytest.fixture
def notebook(monkeypatch):
    """Let a notebook run whose third cell has the code of this file."""
    shell = SimpleNamespace(
        compile=SimpleNamespace(format_code_name=lambda file: ("Cell", "In[3]") if file == __file__ else None)
    )
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


@pytest.mark.usefixtures("notebook")
def test_a_place_in_a_cell_is_named_by_the_cell():
    assert "--> cell In[3]:7:2" in render(Finding("L002", place=Place(__file__, 7, 2)))


@pytest.mark.usefixtures("notebook")
def test_a_place_in_a_file_keeps_the_name_of_the_file():
    assert name_cell("train.py") == ""


@pytest.mark.parametrize("shell", [None, SimpleNamespace(), SimpleNamespace(compile=SimpleNamespace())], ids=str)
def test_without_a_notebook_that_names_its_cells_a_file_keeps_its_name(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))

    assert name_cell(__file__) == ""


def catch(error):
    try:
        raise error
    except PortingError as caught:
        return caught


def test_an_uncaught_error_is_its_finding_alone():
    shown = catch(PortingError.of("L002", place=Place(__file__, 1)))._render_traceback_()

    assert shown[0].startswith("error[L002]")
    assert "Traceback" not in "\n".join(shown)
    assert "PORTING_TRACEBACK=1" in shown[-1]


def test_the_traceback_stands_below_the_finding_where_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("PORTING_TRACEBACK", "1")

    shown = catch(PortingError.of("L002", place=Place(__file__, 1)))._render_traceback_()

    assert shown[0].startswith("error[L002]")
    assert "raise error" in "\n".join(shown)


def test_an_error_without_a_place_has_its_traceback():
    shown = catch(PortingError.of("L002"))._render_traceback_()

    assert "raise error" in "\n".join(shown)
