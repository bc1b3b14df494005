"""Users' programs read from scripts, folders, modules and notebooks; what cannot be read is a finding, and no more."""

from __future__ import annotations

import ast
import itertools
import os
import re
import warnings
from dataclasses import dataclass
from functools import cached_property
from importlib.util import decode_source
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Set, Tuple, Type, Union

from porting.diagnostics import Finding, Place
from porting.source.notebooks import Cell, blank_magics, read_cells

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "SourceFile",
    "Unit",
    "list_blocks",
    "list_nodes",
    "list_sources",
    "list_statements",
    "read_source",
]

MOST_FILES = 2000
"""So many files of a folder are read."""

MOST_BYTES = 4_000_000
"""A larger file is data in the clothes of a program."""

_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "dist-packages", "venv", "env", "build", "dist"}


@dataclass(frozen=True, eq=False)
class Unit:
    """Source that is parsed in one piece: a script, or a cell of a notebook.

    `file` is what places say: the path, for a cell followed by `:cell 3`; lines and columns count within the unit.
    """

    file: str
    tree: ast.Module
    text: str

    @cached_property
    def lines(self) -> Tuple[str, ...]:
        """The lines of the text."""
        return tuple(self.text.split("\n"))

    def place_of(self, node: ast.AST) -> Place:
        """Say which span a node stands in, with columns in characters."""
        line, end_line = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
        start, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None)
        if end_line is None or end is None:
            return Place(self.file, line, self._count_characters(line, start), end_line)
        if self._has_only_ascii:
            return Place(self.file, line, start + 1, end_line, end + 1)
        return Place(
            self.file, line, self._count_characters(line, start), end_line, self._count_characters(end_line, end)
        )

    def text_of(self, node: ast.AST) -> str:
        """Write a node as it stands in the source, in one line."""
        return self.text_at(self.place_of(node))

    def text_at(self, place: Place) -> str:
        """Write what stands at a place, in one line."""
        last = place.end_line or place.line
        lines = list(self.lines[place.line - 1 : last])
        if not lines:
            return ""
        if place.end_column is not None:
            lines[-1] = lines[-1][: place.end_column - 1]
        lines[0] = lines[0][(place.column or 1) - 1 :]
        return " ".join(line.strip() for line in lines)

    @cached_property
    def _has_only_ascii(self) -> bool:
        return self.text.isascii()

    def _count_characters(self, line: int, byte: int) -> int:
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return byte + 1 if text.isascii() else len(text.encode("utf-8")[:byte].decode("utf-8", "ignore")) + 1


@dataclass(frozen=True, eq=False)
class SourceFile:
    """A file that was read: its units, several for a notebook, and what is wrong with the rest of it."""

    path: str
    units: Tuple[Unit, ...] = ()
    findings: Tuple[Finding, ...] = ()


def list_nodes(top: ast.AST) -> List[ast.AST]:
    """List a node and all that is in it in the order of `ast.walk`, in a fifth of the time; contexts are left out."""
    found = [top]
    for node in found:
        for name in _HOLDING_NODES[type(node)]:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += value if None not in value else filter(None, value)
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def list_statements(top: ast.AST) -> List[ast.AST]:
    """List a node and the statements in it, with handlers and cases, in the order of `list_nodes`."""
    found = [top]
    for node in found:
        found += list_blocks(node)
    return found


def list_blocks(node: ast.AST) -> List[ast.AST]:
    """List the statements, handlers and cases that stand right under a node."""
    return [part for name in _HOLDING_STATEMENTS[type(node)] for part in getattr(node, name)]


class _Fields(Dict[Type[ast.AST], Tuple[str, ...]]):
    """Names of the fields of each class of nodes that are wanted, which are told when it is first met."""

    def __init__(self, is_wanted: Callable[[Type[ast.AST], str], bool]) -> None:
        super().__init__()
        self._is_wanted = is_wanted

    def __missing__(self, kind: Type[ast.AST]) -> Tuple[str, ...]:
        self[kind] = tuple(name for name in kind._fields if self._is_wanted(kind, name))
        return self[kind]


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
_LEAVES = (ast.Constant, ast.Global, ast.Nonlocal)
_TEXTS = frozenset("arg attr conversion ctx id is_async kind kwd_attrs level module rest simple type_comment".split())
_HOLDING_NODES = _Fields(lambda kind, name: name not in _TEXTS and not issubclass(kind, _LEAVES))
_HOLDING_STATEMENTS = _Fields(lambda kind, name: name in _BLOCKS and not issubclass(kind, ast.expr))


def list_sources(path: Union[str, os.PathLike[str]]) -> Tuple[List[str], List[Finding]]:
    """List the programs and notebooks of a folder, or the one file; hidden folders and installed packages are left out.

    Links are followed, each folder once, so that circles end.
    """
    name = os.fspath(path)
    if not os.path.isdir(name):
        return [name], []
    files = list(itertools.islice(_go_through_folder(name), MOST_FILES + 1))
    if len(files) <= MOST_FILES:
        return files, []
    note = f"the first {MOST_FILES:,} files are read, in the order of their names"
    return files[:MOST_FILES], [Finding("X005", place=None, notes=(f"the folder is {name}", note))]


def _go_through_folder(top: str) -> Iterator[str]:
    seen: Set[str] = set()
    for folder, folders, names in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders[:] = []
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not _is_skipped(folder, name))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith((".py", ".ipynb")) and os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield path


def _is_skipped(folder: str, name: str) -> bool:
    is_environment = os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
    return name.startswith(".") or name in _SKIPPED_FOLDERS or name.endswith(".egg-info") or is_environment


def read_source(path: str) -> SourceFile:
    """Read and parse a file; never raises for what is in it."""
    parsed: List[Union[Unit, Finding]] = []
    try:
        parsed += _parse_file(path)
    except (OSError, SyntaxError, ValueError, LookupError) as error:
        parsed.append(Finding("X004", place=Place(path, 1), notes=_say_fault(error)))
    units = tuple(part for part in parsed if isinstance(part, Unit))
    return SourceFile(path, units, tuple(part for part in parsed if isinstance(part, Finding)))


def _parse_file(path: str) -> Iterator[Union[Unit, Finding]]:
    """Parse what is read in one piece: a script, or the cells of a notebook one by one."""
    if not os.path.isfile(path):
        raise OSError("there is no such file" if not os.path.exists(path) else "it is no regular file")
    if os.path.getsize(path) > MOST_BYTES:
        raise OSError(f"it is larger than {MOST_BYTES:,} bytes")
    data = Path(path).read_bytes()
    if path.endswith(".ipynb"):
        yield from (_parse_cell(f"{path}:cell {cell.number}", cell) for cell in read_cells(data))
        return
    text = decode_source(data)
    if "\0" in text:
        raise ValueError("it holds binary data")
    yield _parse_unit(path, text)


def _say_fault(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} cannot be read as {error.encoding}"
    return getattr(error, "strerror", None) or str(error)


def _parse_unit(file: str, text: str) -> Union[Unit, Finding]:
    try:
        tree = _parse_text(text, file)
    except SyntaxError as error:
        return _describe_syntax_error(file, text, error)
    except (ValueError, RecursionError, MemoryError) as error:
        return Finding("X002", place=Place(file, 1), notes=str(error) or type(error).__name__)
    return Unit(file, tree, text)


def _parse_text(text: str, file: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python will not know for ever
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(text, file, "exec", flags=flags, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree


_PYTHON_2 = re.compile(
    r"""^[ \t]*print[ \t]+(?!=)[\w"'%(]          # a statement
    |^[ \t]*print[ \t]*>>
    |^[ \t]*except[ \t]+[\w.()]+[ \t]*,[ \t]*\w+[ \t]*:
    |^[ \t]*raise[ \t]+[\w.]+[ \t]*,
    |^[ \t]*exec[ \t]+["'\w]
    |<>|\b0[0-7]+\b|\b\d+[lL]\b|\bur["']""",
    re.VERBOSE,
)


def _describe_syntax_error(file: str, text: str, error: SyntaxError) -> Finding:
    line = max(1, error.lineno or 1)
    lines = text.split("\n")
    source = lines[line - 1] if line <= len(lines) else ""
    column = error.offset if error.offset and error.offset <= len(source) + 1 else None
    is_python_2 = _PYTHON_2.search(source) or "Missing parentheses in call to" in str(error.msg)
    return Finding("X003" if is_python_2 else "X002", place=Place(file, line, column), label=str(error.msg))


def _parse_cell(file: str, cell: Cell) -> Union[Unit, Finding]:
    """Parse a cell as it is, and only if that fails without its magics, which may stand in a string."""
    unit = _parse_unit(file, cell.text)
    if isinstance(unit, Unit):
        return unit
    unit = _parse_unit(file, blank_magics(cell.text))
    return Unit(file, unit.tree, cell.text) if isinstance(unit, Unit) else unit
