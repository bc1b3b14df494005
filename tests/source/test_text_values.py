"""Texts and paths are worked out from the syntax alone."""

from __future__ import annotations

import ast
import os

import pytest

from porting.source.text_values import evaluate_text, list_added_folders

HERE = os.path.join(os.sep, "home", "me", "project", "bin", "train.py")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'lib'", "lib"),
        ("'a' + '.' + 'b'", "a.b"),
        ("f'models.{name}_net'", "models.*_net"),
        ("os.path.dirname(__file__)", "/home/me/project/bin"),
        ("os.path.dirname(os.path.dirname(os.path.abspath(__file__)))", "/home/me/project"),
        ("os.path.join(os.path.dirname(__file__), os.pardir, 'src')", "/home/me/project/bin/../src"),
        ("str(Path(__file__).resolve().parent.parent / 'src')", "/home/me/project/src"),
        ("Path(__file__).parents[1].as_posix()", "/home/me/project"),
        ("pathlib.Path(__file__).parent.joinpath('lib')", "/home/me/project/bin/lib"),
        ("inspect.getfile(inspect.currentframe())", HERE),
    ],
)
def test_a_text_is_known(expression, expected):
    assert evaluate_text(ast.parse(expression, mode="eval").body, {}, HERE) == [expected]


@pytest.mark.parametrize("expression", ["name", "config['path']", "f()", "1", "x % y"])
def test_what_is_not_known_is_nothing(expression):
    assert evaluate_text(ast.parse(expression, mode="eval").body, {}, HERE) == []


def test_a_sum_of_thousands_is_not_known():
    assert evaluate_text(ast.parse(" + ".join(["'a'"] * 900), mode="eval").body, {}, HERE) in ([], ["a" * 900])


@pytest.mark.parametrize("line", ["x = x + x", "x = f'{x}{x}{x}'", "x = os.path.join(x, x)"])
def test_a_text_that_grows_from_line_to_line_ends(line):
    text = "for x in ('a', 'b', 'c', 'd'):\n    pass\n" + f"{line}\n" * 60 + "sys.path.append(x)"

    assert list_added_folders(ast.parse(text), HERE) == []


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Work in a folder with a `lib` and a script in `bin`."""
    monkeypatch.chdir(tmp_path)
    for name in ("lib", "bin", "bin/tools"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sys.path.append('lib')", [("lib", False)]),
        ("sys.path.insert(0, '../lib')", [("lib", True)]),
        ("sys.path.append('tools')", [("bin/tools", False)]),
        ("sys.path.extend(['lib', 'tools'])", [("lib", False), ("bin/tools", False)]),
        ("sys.path = ['lib'] + sys.path", [("lib", True)]),
        ("sys.path += ['lib']", [("lib", False)]),
        ("site.addsitedir('lib')", [("lib", False)]),
        ("d = os.path.dirname(os.path.abspath(__file__))\nd = os.path.dirname(d)\nsys.path.insert(0, d)", [("", True)]),
        ("def f():\n    root = Path(__file__).parent.parent\n    sys.path.append(str(root / 'lib'))", [("lib", False)]),
        ("for name in ('lib', 'tools'):\n    sys.path.append(name)", [("lib", False), ("bin/tools", False)]),
        ("sys.path.append(os.getcwd())", [("", False)]),
        ("sys.path.append('gone')", []),
        ("sys.path.append(args.folder)", []),
        ("os.path.join('lib')", []),
    ],
)
def test_folders_that_a_program_adds_are_known(project, text, expected):
    assert list_added_folders(ast.parse(text), "bin/train.py") == expected
