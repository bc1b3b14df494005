"""Names of programs on the command line."""

from __future__ import annotations

import pytest

from porting.cli.program_names import split_program


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train.py:make", ("train.py", "make")),
        ("package.train:Parts.make", ("package.train", "Parts.make")),
        ("train.py", ("train.py", None)),
        ("folder/train.py:3", ("folder/train.py:3", None)),
        (":make", (":make", None)),
    ],
)
def test_a_function_is_named_after_the_last_colon(text, parts):
    assert split_program(text) == parts


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train:make").touch()

    assert split_program("train:make") == ("train:make", None)
