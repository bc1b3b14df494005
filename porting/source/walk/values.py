"""Describe what a variable of a walk may be.

It may be objects, functions, classes, names of libraries and constants, or several of them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from porting.source.facts import Kind, ProgramObject, ProgramObjects
from porting.source.library import TENSOR_KINDS
from porting.source.project import Module, Unit

__all__ = [
    "ANY",
    "UNKNOWN",
    "Bound",
    "Class",
    "Constant",
    "External",
    "Function",
    "Item",
    "Object",
    "Partial",
    "Scope",
    "Stream",
    "Value",
    "join",
    "list_constants",
    "list_functions",
    "list_objects",
    "list_program_objects",
    "list_tensors",
]

ANY = "*"
"""The name, in a container, of what holds what may stand at any other index or key."""

Scope = Dict[Any, "Value"]
"""Cells by name: of a function's locals, a module's globals, an object's attributes or a container's elements."""


@dataclass(eq=False)
class Object:
    """A program object, an instance of a program's class, or a container; several variables may hold the same one."""

    program_object: Optional[ProgramObject] = None
    definition: Optional[Class] = None
    variables: Scope = field(default_factory=dict)
    """Its attributes."""
    elements: Optional[Scope] = None
    """What it holds by index or key, where it is a container; see `ANY`."""


@dataclass(eq=False)
class Function:
    """A function of the program's, with what it has from where it was defined and, for a method, whose it is."""

    node: Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]
    name: str
    unit: Unit
    module: Module
    scopes: Tuple[Scope, ...] = ()
    """The locals of the functions around it, the innermost first."""
    defaults: Mapping[str, Value] = field(default_factory=dict)
    owner: Optional[Class] = None
    receiver: Optional[Value] = None
    """What it is bound to; None for a plain function."""
    form: str = "function"
    """`function`, `staticmethod`, `classmethod` or `property`."""
    without_gradients: bool = False


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the program's."""

    node: ast.ClassDef
    name: str
    unit: Unit
    module: Module
    bases: Tuple[Value, ...] = ()
    variables: Scope = field(default_factory=dict)

    @cached_property
    def line(self) -> Tuple[Class, ...]:
        """The class, and those of the program's that it derives from, the nearest first."""
        above = (base for value in self.bases for base in value if isinstance(base, Class))
        return tuple(dict.fromkeys((self, *(cls for base in above for cls in base.line))))


@dataclass(frozen=True)
class External:
    """A name of a library or of Python's own: a module, a class or a function, told by its qualified name."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A number, a string, a truth value or None."""

    value: Any
    kind: str = ""

    @staticmethod
    @lru_cache(maxsize=4096, typed=True)
    def of(value: Any) -> Constant:
        """Make a constant that differs from equal ones of another type, as 1 and True are."""
        return Constant(value, type(value).__name__)


@dataclass(eq=False)
class Bound:
    """A method of a program object, or a name of an object of which nothing else is known."""

    receiver: Value
    name: str


@dataclass(frozen=True, eq=False)
class Partial:
    """A function and some of its arguments."""

    function: Value
    arguments: Tuple[Value, ...]
    keywords: Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Stream:
    """What is gone through: a generator's values, or pairs of counts and batches."""

    element: Value
    objects: ProgramObjects = ()
    """The loaders and the like that its elements come of."""


Item = Union[Object, Function, Class, External, Constant, Bound, Partial, Stream]
Value = Tuple[Item, ...]
"""All that a value may be; nothing where nothing is known."""

UNKNOWN: Value = ()
_MOST_ITEMS = 12


def join(*values: Value) -> Value:
    """Join what a value may be on several ways to it; of very many possibilities the first are kept."""
    first = values[0] if values else UNKNOWN
    for value in values:
        if value is not first and value:
            return tuple(dict.fromkeys(chain(*values)))[:_MOST_ITEMS]
    return first


def list_objects(value: Value, *kinds: Kind) -> List[Object]:
    """List the objects of a value that are program objects of these kinds."""
    return [
        item for item in value if isinstance(item, Object) and item.program_object and item.program_object.kind in kinds
    ]


def list_functions(values: Iterable[Value]) -> List[Function]:
    """List the functions of the program's that values may be."""
    return [item for value in values for item in value if isinstance(item, Function)]


def list_tensors(*values: Value) -> ProgramObjects:
    """List the tensors that values may be, those in containers left out."""
    objects = (
        item.program_object
        for value in values
        for item in value
        if isinstance(item, Object) and item.program_object is not None
    )
    return tuple(one for one in objects if one.kind in TENSOR_KINDS)


def list_constants(value: Value) -> List[Any]:
    """List the constants that a value may be."""
    return [item.value for item in value if isinstance(item, Constant)]


def list_program_objects(value: Value) -> ProgramObjects:
    """List the program objects of a value, with those that stand in its containers."""
    if not value:
        return ()
    if len(value) == 1:
        item = value[0]
        if isinstance(item, Object):
            if item.program_object is not None:
                return (item.program_object,)
        elif not isinstance(item, Stream):
            return ()
    objects: Dict[ProgramObject, None] = {}
    for program_object in _go_through_objects(value, set()):
        objects[program_object] = None
    return tuple(objects)


def _go_through_objects(items: Iterable[Item], seen: set) -> Iterator[ProgramObject]:
    for item in items:
        if isinstance(item, Object):
            if id(item) in seen:
                continue
            seen.add(id(item))
            if item.program_object is not None:
                yield item.program_object
            elif item.elements is not None:
                for element in list(item.elements.values()):
                    yield from _go_through_objects(element, seen)
        elif isinstance(item, Stream):
            yield from _go_through_objects(item.element, seen)
