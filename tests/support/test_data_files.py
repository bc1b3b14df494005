"""What readers say of files that are missing or damaged."""

from __future__ import annotations

import pytest

from porting.diagnostics import PortingError
from porting.support.data_files import make_file_error, require_file


def test_a_file_that_is_there_is_a_path(tmp_path):
    (tmp_path / "a.csv").write_text("")

    assert require_file(str(tmp_path / "a.csv")) == tmp_path / "a.csv"


@pytest.mark.parametrize(("name", "found"), [("absent.csv", "there is no such file"), (".", "it is a folder")])
def test_a_file_that_is_not_there_is_an_error_that_says_what_helps(tmp_path, name, found):
    with pytest.raises(PortingError) as caught:
        require_file(tmp_path / name, help="look for it")

    assert (caught.value.code, caught.value.finding.notes, caught.value.finding.help) == (
        "F002",
        (found,),
        ("look for it",),
    )


def test_damage_in_a_text_is_shown_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("p,x\np,\n")

    error = make_file_error("a.csv", "an empty cell", line=2, column=3, help="fill it")

    assert str(error) == (
        "error[F001]: `a.csv` cannot be read\n"
        "  --> a.csv:2:3\n"
        "   |\n"
        " 2 | p,\n"
        "   | ^^ an empty cell\n"
        "   |\n"
        "   = help: fill it\n"
        "   = more: porting explain F001 (damaged-data-file)"
    )


def test_damage_elsewhere_is_named_by_its_location():
    error = make_file_error("a.h5", "3 rows", location="dataset `b`")

    assert error.finding.notes == ("dataset `b`: 3 rows",)
