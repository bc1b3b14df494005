"""Edits of a file change what they say, and nothing else of it."""

from __future__ import annotations

import ast

import pytest

from porting.convert.editing import EditError, FileEdits
from porting.convert.trees import ProgramFile
from porting.source.files import read_source
from tests.convert.conversions import LOOP, convert_text

_TEXT = (
    "# begin\nimport os  # of Python\n\n\nif True:\n    a = 1  # one\n    b = f(a)\n\n"
    "    # before c\n    c = 3\n# end\n"
)


@pytest.fixture
def edits_of(tmp_path):
    def make(text):
        path = tmp_path / "train.py"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return FileEdits(ProgramFile(read_source(str(path)).units[0], "train"), path.read_bytes())

    return make


def find_statement(edits, text):
    nodes = [one for one in ast.walk(edits.file.tree) if isinstance(one, ast.stmt) and ast.unparse(one) == text]
    return nodes[0]


def test_a_file_without_edits_is_the_same_bytes(edits_of):
    text = "x = 1\r\n\tbroken"
    edits = edits_of("x = 1\r\n")
    assert edits.apply() == b"x = 1\r\n"
    assert text not in edits.apply().decode()


def test_insertions_stand_in_the_block_and_keep_every_comment(edits_of):
    edits = edits_of(_TEXT)
    edits.insert_before(find_statement(edits, "c = 3"), "new = 0", "port", "a reason")
    edits.insert_after(find_statement(edits, "a = 1"), "new = 1\nif new:\n    pass", "port", "a reason")
    after = edits.apply().decode()
    assert "    a = 1  # one\n    new = 1\n    if new:\n        pass\n    b = f(a)\n" in after
    assert "    # before c\n    new = 0\n    c = 3\n# end\n" in after
    left = [line for line in after.split("\n") if line in _TEXT.split("\n")]
    assert left == _TEXT.split("\n")


def test_an_insertion_before_what_is_decorated_stands_before_its_decorators(edits_of):
    edits = edits_of("import a\n\n\n@a.b(1)\n@a.c\nclass D:\n    pass\n")
    edits.insert_before(edits.file.tree.body[1], "new = 0", "port", "a reason")

    assert edits.apply().decode() == "import a\n\n\nnew = 0\n@a.b(1)\n@a.c\nclass D:\n    pass\n"


@pytest.mark.parametrize(("end", "indent"), [("\r\n", "    "), ("\n", "\t"), ("\r\n", "\t")])
def test_line_ends_and_tabs_are_those_of_the_file(edits_of, end, indent):
    text = _TEXT.replace("    ", indent).replace("\n", end)
    edits = edits_of(text)
    edits.insert_after(find_statement(edits, "a = 1"), "if a:\n    d = 2", "port", "a reason")
    after = edits.apply().decode()
    assert f"{indent}if a:{end}{indent}{indent}d = 2{end}" in after
    assert after.count("\n") == after.count(end)
    assert all(line in after.split(end) for line in text.split(end))


def test_the_encoding_of_a_file_is_kept(edits_of):
    text = "# -*- coding: latin-1 -*-\nname = 'f\xfcr'\nx = g(name)\n".encode("latin-1")
    edits = edits_of(text)
    call = find_statement(edits, "x = g(name)").value
    edits.replace(call, "PART if name else WHOLE", "cuda", "a reason", part=call.args[0])
    assert edits.apply() == text.replace(b"g(name)", b"name if name else g(name)")


def test_an_expression_within_an_expression_is_changed_as_well(edits_of):
    edits = edits_of("y = outer(inner(x))  # two\n")
    outer = find_statement(edits, "y = outer(inner(x))").value
    edits.replace(outer, "a(PART)", "cuda", "a reason", part=outer.args[0])
    edits.replace(outer.args[0], "b(PART)", "cuda", "a reason", part=outer.args[0].args[0])
    assert edits.apply() == b"y = a(b(x))  # two\n"


def test_guarded_statements_become_the_other_branch(edits_of):
    edits = edits_of(_TEXT)
    first, last = find_statement(edits, "b = f(a)"), find_statement(edits, "c = 3")
    edits.guard(first, last, "ready", "b = 2", "step", "a reason")
    after = edits.apply().decode()
    assert "    if ready:\n        b = 2\n    else:\n        b = f(a)\n\n        # before c\n        c = 3\n" in after


@pytest.mark.parametrize(
    ("test", "negated"),
    [
        ("a in b", "a not in b"),
        ("not a", "a"),
        ("a", "not a"),
        ('"a" in b and c != 0', '"a" not in b or c == 0'),
        ("a or b", "not (a or b)"),
    ],
)
def test_a_guard_without_another_branch_negates_its_test(edits_of, test, negated):
    edits = edits_of("x = 1\n")
    edits.guard(find_statement(edits, "x = 1"), find_statement(edits, "x = 1"), test, "", "cuda", "a reason")
    assert edits.apply().decode() == f"if {negated}:\n    x = 1\n"


def test_imports_come_where_imports_are_and_once(edits_of):
    edits = edits_of('"""A text."""\nfrom __future__ import annotations\nimport sys\nimport os\n\nx = os.sep\n')
    for code in ("import os", "import json", "import json", "try:\n    import a\nexcept ImportError:\n    a = None"):
        edits.add_import(code)
    assert edits.apply().decode() == (
        '"""A text."""\nfrom __future__ import annotations\nimport json\nimport sys\nimport os\n\n'
        "try:\n    import a\nexcept ImportError:\n    a = None\n\nx = os.sep\n"
    )


def test_an_argument_comes_before_those_by_keyword(edits_of):
    edits = edits_of("x = f(\n    a,\n    b=1,  # one\n)\ny = g()\n")
    for name in ("x", "y"):
        call = next(one for one in edits.file.tree.body if one.targets[0].id == name).value
        edits.add_argument(call, "c", "2", "port", "a reason")
    assert edits.apply() == b"x = f(\n    a,\n    c=2,\n    b=1,  # one\n)\ny = g(c=2)\n"


def test_a_statement_is_taken_out_and_its_comments_stay(edits_of):
    edits = edits_of("for x in y:\n    # a reason\n    f(x)\n    # and another\n    g(x)\n")
    edits.remove(find_statement(edits, "f(x)"), "step", "a reason")
    assert edits.apply() == b"for x in y:\n    # a reason\n    # and another\n    g(x)\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("for x in y: f(x)\n", "for x in y:\n    g(x)\n    f(x)\n"),
        ("# c\na = 1; f(x); b = 2  # d\n", "# c\na = 1\ng(x)\nf(x)\nb = 2  # d\n"),
        ("if a: b = 1; f(x)\n", "if a:\n    b = 1\n    g(x)\n    f(x)\n"),
    ],
)
def test_a_statement_among_others_gets_a_line_of_its_own(edits_of, text, after):
    edits = edits_of(text)
    edits.insert_before(find_statement(edits, "f(x)"), "g(x)", "port", "a reason")
    assert edits.apply().decode() == after


def test_a_text_that_is_no_python_is_refused(edits_of):
    edits = edits_of("x = f(1)\n")
    edits.replace(find_statement(edits, "x = f(1)").value, "if", "port", "a reason")
    with pytest.raises(EditError):
        edits.apply()


def test_an_import_further_down_comes_too_late(tmp_path):
    text, _made = convert_text(tmp_path, "__author__ = 'me'\nimport os\nimport sys\n" + LOOP)
    assert text.index("import os") < text.index("os.environ")


@pytest.mark.parametrize("own", ["import os", "os = None"])
def test_what_reads_a_name_before_its_function_gives_it_a_meaning_has_no_place(tmp_path, own):
    program = LOOP.replace("for step", f"def train():\n    {own}\n\nfor step")
    begun = LOOP.replace("model = nn", "def make():\n    global model\n    model = nn", 1).replace(
        "optimizer =", f"    {own}\nmake()\noptimizer =", 1
    )

    assert not convert_text(tmp_path, program)[1].left
    assert "has a name `os` of its own behind the edit" in convert_text(tmp_path, begun)[1].left[0].reason
