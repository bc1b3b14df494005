"""Files of every kind are read, and what is wrong with one is a finding with its place, never an exception."""

from __future__ import annotations

import ast
import json
import os
import textwrap
from pathlib import Path
from typing import List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.diagnostics import Finding
from porting.source.files import MOST_BYTES, SourceFile, list_nodes, list_sources, list_statements, read_source


def read_bytes(folder: Path, data: bytes, name: str = "train.py") -> SourceFile:
    path = folder / name
    path.write_bytes(data)
    return read_source(str(path))


def only(findings: tuple[Finding, ...]) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfx = 1\n",
        "# -*- coding: latin-1 -*-\nx = 'Z\u00fcrich'\n".encode("latin-1"),
        b"#!/usr/bin/python\n# vim: set fileencoding=utf-8 :\nx = 1\n",
        b"if True:\n\tx = 1\n\ty = 2\n",
        b"x = 1\n\x0c\ny = 2\n",
        b"x = 1\r\ny = 2\r\n",
        b"x = 1\ry = 2\r",
        b"",
        b"x = '\\d'\n",
    ],
    ids=["mark", "latin", "vim", "tabs", "form feed", "CRLF", "CR", "empty", "old escape"],
)
def test_what_python_reads_is_read(tmp_path, data):
    source = read_bytes(tmp_path, data)

    assert source.findings == ()
    assert len(source.units) == 1


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"loss = (\n", "X002"),
        (b"if True:\nx = 1\n", "X002"),
        (b"print 'epoch', 1\n", "X003"),
        (b"try:\n    pass\nexcept ValueError, error:\n    pass\n", "X003"),
        (b"import torch\nos.chmod(path, 0644)\n", "X003"),
        (b"\x7fELF\x00\x00\x01", "X004"),
        ("x = 'Z\u00fcrich'\n".encode("latin-1"), "X004"),
        (b"# coding: no-such-code\n", "X004"),
        (b"x = 1\x00\n", "X004"),
    ],
)
def test_what_python_does_not_read_is_a_finding(tmp_path, data, code):
    source = read_bytes(tmp_path, data)

    assert only(source.findings).code == code
    assert source.units == ()


def test_a_syntax_error_has_its_line_and_column(tmp_path):
    place = only(read_bytes(tmp_path, b"x = 1\ny = = 2\n").findings).place

    assert (place.line, place.column) == (2, 5)


def test_a_deeply_nested_file_is_a_finding(tmp_path):
    source = read_bytes(tmp_path, b"x = " + b"(" * 100_000 + b")" * 100_000)

    assert only(source.findings).code == "X002"


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_what_is_no_file_is_a_finding(tmp_path, name):
    assert only(read_source(str(tmp_path / name)).findings).code == "X004"


def test_a_very_large_file_is_not_read(tmp_path):
    source = read_bytes(tmp_path, b"#" * (MOST_BYTES + 1))

    assert "larger" in only(source.findings).notes[0]


def test_columns_count_characters(tmp_path):
    (unit,) = read_bytes(tmp_path, "\u00fc\u00fc = loss\n".encode()).units
    place = unit.place_of(unit.tree.body[0].value)

    assert (place.line, place.column, place.end_column) == (1, 6, 10)


def test_the_text_of_a_node_is_one_line(tmp_path):
    (unit,) = read_bytes(tmp_path, b"x = f(\n    a,\n    b,\n)\n").units

    assert unit.text_of(unit.tree.body[0]) == "x = f( a, b, )"


def notebook(*cells: str, language: str = "python") -> bytes:
    parts = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    metadata = {"kernelspec": {"language": language}}
    return json.dumps({"cells": parts, "metadata": metadata, "nbformat": 4}).encode()


def test_places_in_a_notebook_are_in_its_cells(tmp_path):
    source = read_bytes(tmp_path, notebook("import torch\n", "x = 1\ny = 2\n"), "train.ipynb")
    unit = source.units[1]

    place = unit.place_of(unit.tree.body[1])
    assert (os.path.basename(place.file), place.line) == ("train.ipynb:cell 2", 2)


def test_a_broken_cell_does_not_hide_the_others(tmp_path):
    source = read_bytes(tmp_path, notebook("x = (\n", "y = 2\n"), "train.ipynb")

    assert only(source.findings).place.file.endswith(":cell 1")
    assert len(source.units) == 1


def test_a_notebook_of_another_language_is_a_finding(tmp_path):
    source = read_bytes(tmp_path, notebook("x <- 1", language="R"), "train.ipynb")

    assert "a notebook of r" in only(source.findings).notes[0]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"{", b"\xff\xfe", b'{"cells": 3}'])
def test_what_is_no_notebook_is_a_finding(tmp_path, data):
    assert only(read_bytes(tmp_path, data, "train.ipynb").findings).code == "X004"


def make_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")


def relative(folder: Path, files: List[str]) -> List[str]:
    return [os.path.relpath(file, folder) for file in files]


def test_a_folder_gives_its_programs_but_no_installed_ones(tmp_path):
    make_files(tmp_path, "b.py", "a/c.py", "n.ipynb", ".git/x.py", "venv/y.py", "my/pyvenv.cfg", "my/z.py", "t.txt")
    files, findings = list_sources(tmp_path)

    assert relative(tmp_path, files) == ["b.py", "n.ipynb", "a/c.py"]
    assert findings == []


def test_a_circle_of_links_ends(tmp_path):
    make_files(tmp_path, "a/b/train.py")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "again.py").symlink_to(tmp_path / "a" / "b" / "train.py")

    assert len(list_sources(tmp_path)[0]) == 1


def test_more_files_than_are_read_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr("porting.source.files.MOST_FILES", 2)
    make_files(tmp_path, "a.py", "b.py", "c.py")
    files, findings = list_sources(tmp_path)

    assert relative(tmp_path, files) == ["a.py", "b.py"]
    assert [finding.code for finding in findings] == ["X005"]


PROGRAM = textwrap.dedent(
    """
    import torch
    # Z\u00fcrich
    class Net(torch.nn.Module):
        def forward(self, x):
            return {k: v for k, v in zip(x, (1, 2))}
    for x, y in [(1, 2)]:
        loss = Net()(x) if y else f"{y!r:>{x}}"
    """
).encode()


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")

    assert isinstance(read_bytes(folder, data), SourceFile)
    assert isinstance(read_bytes(folder, data, "train.ipynb"), SourceFile)


@settings(max_examples=200, deadline=None)
@given(end=st.integers(0, len(PROGRAM)), extra=st.binary(max_size=4))
def test_no_part_of_a_program_makes_the_reader_raise(tmp_path_factory, end, extra):
    source = read_bytes(tmp_path_factory.mktemp("fuzz"), PROGRAM[:end] + extra + PROGRAM[end + 1 :])

    assert bool(source.units) != bool(source.findings)


PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_nodes_and_statements_come_in_the_order_of_ast(path):
    (unit,) = read_source(str(path)).units
    walked = list(ast.walk(unit.tree))

    assert list_nodes(unit.tree) == [node for node in walked if not isinstance(node, ast.expr_context)]
    assert list_statements(unit.tree)[1:] == [node for node in walked if isinstance(node, STATEMENTS)]


STATEMENTS = (ast.stmt, ast.ExceptHandler, *([ast.match_case] if hasattr(ast, "match_case") else []))


@pytest.mark.parametrize("text", ["lambda x: x", "a if b else c", "{**a, 'b': c}", "lambda *, a, b=1: b"])
def test_expressions_hold_nodes_and_no_statements(text):
    top = ast.parse(text, mode="eval").body

    assert list_nodes(top) == [node for node in ast.walk(top) if not isinstance(node, ast.expr_context)]
    assert list_statements(top) == [top]
