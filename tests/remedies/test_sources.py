"""A function with an edited source is the old one but for the edit."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from porting.remedies import Edit
from porting.remedies.sources import EditMismatchError, edit_function
from tests.remedies import sample_library
from tests.remedies.sample_library import Model, scale


def test_an_edit_changes_what_a_function_computes():
    edited = edit_function(scale, (Edit("x * by", "x - by"),))

    assert (edited(10), edited(10, by=1), scale(10)) == (11, 12, 23)


def test_globals_are_those_of_the_library_and_not_copies(monkeypatch):
    edited = edit_function(scale, (Edit("x * by", "x - by"),))
    monkeypatch.setattr(sample_library, "FACTOR", 0)

    assert edited(10) == 8


def test_super_works_in_an_edited_method():
    edited = edit_function(Model.name, (Edit("assert lengths[0] > 100", "pass"),))

    assert edited(Model(), suffix="?") == "base?"


def test_a_decorator_stays_around_an_edited_function():
    edited = edit_function(Model.place, (Edit("raise ValueError(x)", "return x + 1"),))

    assert edited(Model(), 1) == ("decorated", 2)


def test_lines_are_those_of_the_library():
    edited = edit_function(Model.place, (Edit("ValueError", "KeyError"),))

    with pytest.raises(KeyError) as caught:
        edited(Model(), 1)

    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    source = Path(sample_library.__file__).read_text(encoding="utf-8").splitlines()
    assert last.filename == sample_library.__file__
    assert "raise ValueError(x)" in source[(last.lineno or 0) - 1]


def test_the_signature_is_the_old_one():
    edited = edit_function(scale, (Edit("x * by", "x - by"),))

    assert edited.__kwdefaults__ == {"by": 2}
    assert edited.__name__ == "scale"


@pytest.mark.parametrize(
    ("function", "edit", "message"),
    [
        (scale, Edit("x / by", "x"), "0 times, not 1"),
        (scale, Edit("y", "z"), "times, not 1"),
        (len, Edit("a", "b"), "not written in Python"),
        (eval("lambda x: x"), Edit("x", "y"), "is not there"),
    ],
)
def test_another_source_is_refused(function, edit, message):
    with pytest.raises(EditMismatchError, match=message):
        edit_function(function, (edit,))
