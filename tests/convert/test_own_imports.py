"""Imports of a port are told from the user's, so that they are taken out again."""

from __future__ import annotations

import libcst as cst

from porting.convert.own_imports import add_imports, list_first_imports


def add_import(text, code="import os"):
    module = cst.parse_module(text)
    return add_imports(module, [code], module).code


def test_an_import_that_the_file_has_for_nothing_is_added_with_a_mark():
    assert add_import("import os\n\nx = 1\n") == "import os  # of the port\nimport os\n\nx = 1\n"


def test_an_import_that_the_file_uses_is_not_added():
    assert add_import("import os\n\nx = os.sep\n") == "import os\n\nx = os.sep\n"


def test_an_import_further_down_comes_too_late():
    assert add_import("import json\nx = 1\nimport os\ny = os.sep\n").startswith("import os  # of the port\nimport json")


def test_first_imports_are_those_that_a_port_may_have_added():
    assert list_first_imports(cst.parse_module("import os\nimport sys\nimport json\nimport os\n")) == [
        "import os",
        "import sys",
    ]
