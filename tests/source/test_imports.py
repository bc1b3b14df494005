"""Imports are listed as they stand in a file, with whether the program goes on without them."""

from __future__ import annotations

import ast

import pytest

from porting.source.files import Unit
from porting.source.imports import is_main_guard, iter_imports


def imports_of(text, *, is_main=True):
    unit = Unit("train.py", ast.parse(text), text)
    return [("." * one.level + one.name, one.parts, one.is_optional) for one in iter_imports(unit, is_main=is_main)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a.b, c as d", [("a.b", (), False), ("c", (), False)]),
        ("from ..a import b as c, d", [("..a", ("b", "d"), False)]),
        ("from a import *", [("a", (), False)]),
        ("def f():\n    import a", [("a", (), False)]),
        ("try:\n    import a\nexcept ImportError:\n    import b", [("a", (), True), ("b", (), False)]),
        ("try:\n    import a\nexcept ValueError:\n    pass", [("a", (), False)]),
        ("try:\n    import a\nfinally:\n    pass", [("a", (), False)]),
        ("if TYPE_CHECKING:\n    import a", [("a", (), True)]),
        ("if sys.version_info[0] < 3:\n    import a\nelse:\n    import b", [("a", (), True), ("b", (), True)]),
        ("import importlib\nimportlib.import_module('a.' + 'b')", [("importlib", (), False), ("a.b", (), False)]),
        ("name = 'a'\n__import__(name)", [("a", (), False)]),
        ("import_module('.part', __package__)", [(".part", (), False)]),
        ("import_module(f'a.{kind}')", [("a.*", (), True)]),
        ("T = {'n': 'nets.unet:UNet'}\nimport_module(T[n])", [("nets.unet", ("UNet",), False)]),
        ("T = {'n': 'nets.unet:UNet'}", []),
    ],
)
def test_imports_are_listed(text, expected):
    assert imports_of(text) == expected


@pytest.mark.parametrize(("is_main", "expected"), [(True, ["a"]), (False, ["b"])])
def test_a_main_part_imports_only_in_the_program(is_main, expected):
    text = "if __name__ == '__main__':\n    import a\nelse:\n    import b"

    assert [name for name, _parts, _optional in imports_of(text, is_main=is_main)] == expected


@pytest.mark.parametrize(
    ("test", "is_guard"),
    [
        ("__name__ == '__main__'", True),
        ("'__main__' == __name__", True),
        ("type(model).__name__ == 'Net'", False),
        ("name == '__main__'", False),
    ],
)
def test_only_the_name_of_the_file_tells_whether_it_is_the_program(test, is_guard):
    assert is_main_guard(ast.parse(test, mode="eval").body) is is_guard
