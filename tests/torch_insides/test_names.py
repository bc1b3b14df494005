"""Nothing but `torch_insides` names a private part of torch."""

from __future__ import annotations

import ast
from pathlib import Path

import porting

PACKAGE = Path(porting.__file__).parent
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "torch_insides" not in path.parts]


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def names_private_module(node):
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        modules = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return False
    return any(name.split(".")[0] == "torch" and any(map(is_private, name.split("."))) for name in modules)


def names_private_attribute(node):
    if not isinstance(node, ast.Attribute) or not is_private(node.attr):
        return False
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "aten", "nn")


def test_no_other_file_names_one():
    places = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if names_private_module(node) or names_private_attribute(node)
    ]

    assert not places
