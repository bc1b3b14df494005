"""What names of PyTorch's libraries, and of programs, stand for: the tables of `libraries.txt`, and sets of names."""

from __future__ import annotations

import functools
import re
from typing import FrozenSet, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from porting.source.facts import Kind
from porting.source.tables import read_sections

__all__ = [
    "NAMES",
    "PASSING",
    "SEQUENCES",
    "TENSOR_KINDS",
    "Row",
    "find_asking",
    "find_class_kind",
    "find_method_kind",
    "is_host_name",
    "is_known_library",
    "is_of_python",
    "list_kinds",
    "list_result_kinds",
    "list_words",
    "read_name_rows",
    "read_tables",
]

TENSOR_KINDS: FrozenSet[Kind] = frozenset({Kind.LOSS, Kind.OUTPUT, Kind.BATCH, Kind.TENSOR})


class Row(NamedTuple):
    """A row of a table: what a name is that the pattern fits, several words for a tuple, and names that it is for."""

    words: Tuple[str, ...]
    pattern: Pattern[str]
    examples: Tuple[str, ...]


@functools.lru_cache(maxsize=1)
def read_tables() -> Mapping[str, Sequence[Row]]:
    """Read the tables of `libraries.txt`, by the names of their sections."""
    return {name: list(map(_read_row, lines)) for name, lines in read_sections("libraries.txt").items()}


def _read_row(line: str) -> Row:
    words, pattern, examples = line.split()
    return Row(tuple(words.split(",")), re.compile(pattern), tuple(examples.split(",")))


def list_words(table: str, name: str) -> Tuple[str, ...]:
    """List the words of the first row of a table that a name fits; none where it fits no row."""
    return next((row.words for row in read_tables()[table] if row.pattern.fullmatch(name)), ())


@functools.lru_cache(maxsize=16384)
def list_kinds(table: str, name: str) -> Tuple[Kind, ...]:
    """List what a name is by the first row of a table that it fits; nothing where none does."""
    return tuple(map(Kind, list_words(table, name)))


def list_result_kinds(name: str) -> Tuple[Kind, ...]:
    """List what a call of a qualified name returns; nothing where the table does not say.

    >>> list_result_kinds("torch.optim.SGD")
    (<Kind.OPTIMIZER: 'optimizer'>,)
    """
    return list_kinds("calls", name)


def find_class_kind(name: str) -> Optional[Kind]:
    """Find what an instance of a class is that derives from a library's class of this name.

    >>> find_class_kind("torch.nn.Module")
    <Kind.MODULE: 'module'>
    """
    if name.partition(".")[0] in NAMES["other frameworks"]:
        return None
    return next(iter(list_kinds("classes", name)), None)


def find_method_kind(kind: Kind, method: str) -> Optional[Kind]:
    """Find what a method of a program object of this kind returns; None where the table does not say."""
    return next(iter(list_kinds("methods", f"{kind.value}.{method}")), None)


_SECTIONS = read_sections("library_names.txt")
NAMES: Mapping[str, FrozenSet[str]] = {name: frozenset(" ".join(lines).split()) for name, lines in _SECTIONS.items()}
"""Sets of names, by the sections of `library_names.txt`."""


def read_name_rows(section: str) -> List[List[str]]:
    """Read the rows of a section of `library_names.txt` whose first word says something of the others.

    >>> read_name_rows("sequences")[0]
    ['chain', 'torch.nn.Sequential']
    """
    return [line.split() for line in _SECTIONS[section]]


def is_host_name(name: str) -> bool:
    """Tell an attribute or method of tensors, or a function of torch's, that gives no tensor and reads none.

    >>> is_host_name("is_xpu"), is_host_name("numel"), is_host_name("isnan"), is_host_name("is_nonzero")
    (True, True, False, False)
    """
    is_question = name.startswith("is_") and name != "is_nonzero"
    return is_question or name in NAMES["tensor host names"] or name in NAMES["tensor host methods"]


@functools.lru_cache(maxsize=8192)
def find_asking(name: str) -> str:
    """Find what a call of this name asks of tensors in Python; empty where it asks nothing.

    >>> find_asking("builtins.max"), find_asking(".item"), find_asking("torch.mean")
    ('elements', 'method', '')
    """
    return "".join(list_words("asking", name)).replace("-", " ")


SEQUENCES: Mapping[str, str] = {name: form for form, name in read_name_rows("sequences")}
"""Modules that hold modules: one that calls them one after the other, and those that are gone through."""

PASSING: Mapping[str, int] = {name: int(number) for number, *names in read_name_rows("passing") for name in names}
"""What goes through what it is given, with the number of the argument."""


def is_of_python(name: str) -> bool:
    """Tell a name of Python's own libraries, or of those that know nothing of torch.

    >>> is_of_python("numpy.random.rand"), is_of_python("torch.nn")
    (True, False)
    """
    return name.partition(".")[0] in NAMES["of python"]


def is_known_library(name: str) -> bool:
    """Tell a name of a library of which is known what its classes are.

    >>> is_known_library("torch.nn.Linear"), is_known_library("src.networks.UNet")
    (True, False)
    """
    return name.partition(".")[0] in NAMES["of torch"] or is_of_python(name)
