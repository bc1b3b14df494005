"""What many messages say is worded once."""

from __future__ import annotations

import pytest

from porting.diagnostics import align_columns, join_names, suggest_file, suggest_name


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [
        ([], None, ""),
        (["a"], 1, "`a`"),
        (["a", "b"], 1, "`a` and 1 more"),
        ((name for name in "abc"), None, "`a`, `b`, `c`"),
    ],
)
def test_names_that_are_not_shown_are_counted(names, most, text):
    assert join_names(names, most=most) == text


def test_lines_of_a_table_have_no_blanks_at_their_ends():
    assert align_columns([("name", "state"), ("a", "ok"), ("b", "")]) == ["name  state", "a     ok", "b"]


def test_a_table_without_rows_has_no_lines():
    assert align_columns([]) == []


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [("mushroms", "mushrooms"), ("MUSHROOMS", "mushrooms"), ("gpt", "gpt2_small"), ("gpt2_smal", "gpt2_small")],
)
def test_the_nearest_name_is_asked_for(wanted, meant):
    assert suggest_name(wanted, ["cnn", "gpt2_small", "mushrooms"]) == f"did you mean `{meant}`?"


@pytest.mark.parametrize("wanted", ["", "zzz"])
def test_a_name_that_is_like_none_gets_other_advice(wanted):
    assert suggest_name(wanted, ["cnn"], otherwise="use cnn") == "use cnn"


def test_the_nearest_file_of_the_folder_is_asked_for(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "trian.txt").write_text("")

    assert suggest_file(tmp_path / "trian.py") == f"did you mean `{tmp_path / 'train.py'}`?"


@pytest.mark.parametrize("name", ["x.py", "no\0name.py", "nowhere/train.py", ""])
def test_a_file_that_is_like_none_gets_other_advice(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-extra.py").write_text("")

    assert suggest_file(name, otherwise="check the path") == "check the path"
