"""The reference of the documentation site: the public names of packages, with their signatures and docstrings.

The code is read, not imported.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import dedent
from typing import Any, Dict, Iterator, List, Tuple

__all__ = ["REFERENCE", "ROOT", "make_reference"]

ROOT = Path(__file__).parents[2]
REFERENCE = "reference"

# packages with public names of their own, beside those of `porting`
_PACKAGES = ("porting.models", "porting.recipe_chain")
# packages that are called as functions
_CALLED = {"check": "porting.check.model_check", "verify": "porting.verify.verify"}
_WIDTH = 88
# up to an empty line
_EXAMPLE = re.compile(r"^ *>>> (?:.|\n)*?(?=\n *\n|\Z)", re.MULTILINE)


def make_reference() -> Dict[str, str]:
    """Make a page for each package that has public names, of their signatures and docstrings."""
    import griffe  # of the extra `docs`

    groups: Dict[str, List[str]] = {}
    for module, name in _read_public_names("porting"):
        groups.setdefault(module.split(".")[1], []).append(f"{module}.{name}")
    for package in _PACKAGES:
        groups[package.split(".")[1]] = [f"{module}.{name}" for module, name in _read_public_names(package)]
    code = griffe.load("porting", search_paths=[ROOT])
    pages = {f"{REFERENCE}/{group}.md": _describe_all(group, names, code) for group, names in groups.items()}
    rows = [f"| [{group}]({group}.md) | {_list_names(names)} |" for group, names in sorted(groups.items())]
    head = "# Reference\n\nThe public names, by the package that defines them.\n\n| Package | Names |\n|---|---|"
    return {f"{REFERENCE}/README.md": "\n".join([head, *rows, ""]), **pages}


def _describe_all(group: str, names: List[str], code: Any) -> str:
    return "\n".join([f"# {group}\n", *(_describe(code[name[len("porting.") :]], "##") for name in names)])


def _describe(found: Any, level: str) -> str:
    """Describe a function, or a class with its public methods: the signature, then the docstring."""
    text = _fence_examples(found.docstring.value if found.docstring else "")
    parts = [f"{level} {found.name}\n", f"```python\n{_write_signature(found)}\n```\n", f"{text}\n"]
    if found.is_class:
        members = [member for name, member in found.members.items() if name == "__call__" or name[0] != "_"]
        parts += [_describe(member, f"{level}#") for member in members if member.docstring]
    return "\n".join(parts)


def _write_signature(found: Any) -> str:
    """Write a signature on one line, or with an argument a line where it is long."""
    line = str(found.signature()) if found.is_function or found.is_class else found.name
    called = re.fullmatch(r"([^(]*)\((.*)\)(.*)", line, re.DOTALL)
    if called is None:
        return line
    name, arguments, result = called.groups()
    # how a default is made is no reader's business
    parts = [re.sub(r" = (\(lambda|_\w+\().*", " = ...", part) for part in _split(arguments)]
    line = f"{name}({', '.join(parts)}){result}"
    return line if len(line) <= _WIDTH else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){result}"])


def _split(arguments: str) -> List[str]:
    """Split arguments at the commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _fence_examples(docstring: str) -> str:
    """Put the examples of a docstring into fences."""
    return _EXAMPLE.sub(lambda match: f"```pycon\n{dedent(match[0])}\n```", docstring)


def _list_names(names: List[str]) -> str:
    return ", ".join(f"`{name.rpartition('.')[2]}`" for name in names)


def _read_public_names(package: str) -> Iterator[Tuple[str, str]]:
    """Read what a package imports as public for type checkers: `from module import name as name`."""
    source = (ROOT / package.replace(".", "/") / "__init__.py").read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if alias.asname == alias.name:
                    yield _CALLED.get(alias.name, node.module), alias.name
