"""List the values of Python that a step has read outside of tensors; `CompiledIn` compares them in later calls.

A capture sees which attributes of modules are read. What functions read beside these is found in their code: globals,
closure cells, defaults, and whatever their names and strings pick out of dictionaries and objects from there on.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections import deque
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Set, Tuple

import torch
from torch import nn

from ..diagnostics.places import is_user_file
from .watches import is_plain

__all__ = ["ReachedValue", "list_reached_values"]

_MOST_ITEMS = 64
_MOST_VALUES = 2_000
_MOST_STEPS = 6  # from a function to a value: `trainer.config.losses["beta"].weight`
# their objects hold no setting of a step, but half of the program
_LIBRARIES = frozenset(["torch", "numpy", "porting", "poptorch", "logging", "threading", "typing", "re"])
_ITERATES = frozenset(["items", "values", "keys"])
_read_cell = operator.attrgetter("cell_contents")


class _Gone:
    """Stands for a value that is not there any more."""

    def __repr__(self) -> str:
        return "gone"


_GONE = _Gone()


class ReachedValue(NamedTuple):
    """A value that a step may have read: `get(key)` is what it is now, `name` is how the user gets at it."""

    name: str
    get: Callable[[Any], Any]
    key: Any
    value: Any

    def read(self) -> Any:
        """Return what the value is now."""
        try:
            return self.get(self.key)
        except Exception:  # a user's own class may raise anything
            return _GONE

    @property
    def identity(self) -> Tuple[int, Any]:
        """What tells it from all other values: what holds it, and under which key."""
        if self.get is tuple or self.get is _read_cell:
            return id(self.key), None
        return id(getattr(self.get, "__self__", self.get)), self.key


def list_reached_values(
    functions: Iterable[Tuple[str, Any]], objects: Iterable[Tuple[str, Any]], *, known: Iterable[nn.Module]
) -> List[ReachedValue]:
    """List the values that code of the user's can reach from `functions` that a step runs and `objects` that it read.

    Both come with their names. Attributes of the modules that are `known` are looked after by somebody else.

    >>> settings = {"beta": 0.5, "epoch": 3}
    >>> def loss(output, label):
    ...     return output.sum() * settings["beta"]
    >>> [(reached.name, reached.value) for reached in list_reached_values([("loss", loss)], [], known=[])]
    [("settings['beta']", 0.5)]
    """
    walk = _Walk(known)
    for name, each in (*functions, *objects):
        walk.enter(name, each)
    return walk.finish()


class _Walk:
    """Follows functions and objects; what code mentions picks the attributes and entries that are followed."""

    def __init__(self, known: Iterable[nn.Module]) -> None:
        self._mentioned: Set[str] = set()
        self._seen: Dict[int, Any] = {id(module): module for module in known}
        self._holders: List[Tuple[str, Any, int]] = []
        self._found: Dict[Tuple[int, Any], ReachedValue] = {}

    def finish(self) -> List[ReachedValue]:
        """Look into objects until no code mentions anything new, and return all values that were reached."""
        count = (-1, -1)
        while count != (len(self._mentioned), len(self._holders)) and len(self._found) < _MOST_VALUES:
            count = len(self._mentioned), len(self._holders)
            for name, holder, steps in list(self._holders):
                self._look_into(name, holder, steps)
        return list(self._found.values())

    def enter(self, name: str, value: Any, steps: int = _MOST_STEPS) -> None:
        """Follow `value` unless it is plain, a tensor, known, or a library's."""
        if is_plain(value) or isinstance(value, torch.Tensor) or id(value) in self._seen or steps == 0:
            return
        if str(getattr(getattr(value, "func", value), "__module__", "")).partition(".")[0] in _LIBRARIES:
            return
        self._seen[id(value)] = value
        if isinstance(value, MethodType):
            self.enter(name, value.__func__, steps)
            self.enter(name.rpartition(".")[0] or name, value.__self__, steps)
        elif isinstance(value, functools.partial):
            self.enter(name, value.func, steps)
            self._add_all(f"{name}.args", value.args, tuple, steps)
            self._add_all(f"{name}.keywords", value.keywords, dict, steps)
        elif isinstance(value, FunctionType):
            self._read_function(name, value, steps)
        elif isinstance(value, property):
            self.enter(name, value.fget, steps)
        elif isinstance(value, (staticmethod, classmethod)):
            self.enter(name, value.__func__, steps)
        elif _is_followed(value):
            self._holders.append((name, value, steps))
            called = getattr(type(value), "forward" if isinstance(value, nn.Module) else "__call__", None)
            if not isinstance(value, (type, ModuleType)) and isinstance(called, FunctionType):
                self.enter(name, called, steps)

    def _read_function(self, name: str, function: FunctionType, steps: int) -> None:
        """Note what the code of a function mentions; follow its globals, cells and defaults, if it is the user's."""
        self._mentioned |= _list_mentioned(function.__code__)
        if not is_user_file(function.__code__.co_filename):
            return
        around = function.__globals__
        for mentioned in _list_mentioned(function.__code__) & around.keys():
            self._add(mentioned, around.get, mentioned, id(around), steps)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self._add(variable, _read_cell, cell, id(cell), steps)
            except ValueError:
                pass  # a variable that has no value yet
        if function.__defaults__:
            names = function.__code__.co_varnames[: function.__code__.co_argcount][-len(function.__defaults__) :]
            for argument, value in zip(names, function.__defaults__):
                self.enter(argument, value, steps - 1)
        for argument, value in (function.__kwdefaults__ or {}).items():
            self.enter(argument, value, steps - 1)
        for attribute in vars(function):
            self._add(f"{name}.{attribute}", vars(function).get, attribute, id(function), steps)

    def _look_into(self, name: str, holder: Any, steps: int) -> None:
        """Add what is mentioned of an object, a class, a module of Python's, a dictionary or a list."""
        if isinstance(holder, Mapping):
            self._look_into_mapping(name, holder, steps)
        elif isinstance(holder, (list, tuple, set, frozenset, deque)):
            self._add_all(name, holder, tuple, steps)
        attributes = getattr(holder, "__dict__", None) or {}
        for mentioned in self._mentioned & attributes.keys():
            self._add(f"{name}.{mentioned}", attributes.get, mentioned, id(holder), steps)
        if isinstance(holder, ModuleType):
            return
        for kind in (holder if isinstance(holder, type) else type(holder)).__mro__:
            if kind in (object, nn.Module) or not _is_followed(kind):
                continue
            for mentioned in self._mentioned & vars(kind).keys() - attributes.keys():
                self._add_of_class(f"{name}.{mentioned}", holder, kind, mentioned, steps)

    def _add_of_class(self, name: str, holder: Any, kind: type, mentioned: str, steps: int) -> None:
        """Add what the class `kind` of `holder` has by a name: a value, a method, or the value of a slot."""
        value = vars(kind)[mentioned]
        if hasattr(value, "__get__") and hasattr(value, "__set__") and not isinstance(value, property):
            try:
                self._add(name, functools.partial(getattr, holder), mentioned, id(holder), steps)
            except AttributeError:
                pass  # a slot without a value
        else:
            self._add(name, vars(kind).get, mentioned, id(kind), steps)

    def _look_into_mapping(self, name: str, mapping: Mapping[Any, Any], steps: int) -> None:
        keys = [key for key in mapping if key in self._mentioned] if len(mapping) <= _MOST_VALUES else []
        if not keys or self._mentioned & _ITERATES:
            keys = list(mapping) if len(mapping) <= _MOST_ITEMS else keys
        for key in keys:
            self._add(f"{name}[{key!r}]", mapping.get, key, id(mapping), steps)

    def _add_all(self, name: str, holder: Any, as_values: Callable[[Any], Any], steps: int) -> None:
        """Add the items of a sequence as one value, and follow each."""
        if len(holder) > _MOST_ITEMS:
            return
        if as_values is dict:
            self._look_into_mapping(name, holder, steps)
            return
        for number, item in enumerate(holder):
            self.enter(f"{name}[{number}]", item, steps - 1)
        if not isinstance(holder, tuple):
            # a list is one value: its items as they are now
            self._found.setdefault((id(holder), None), ReachedValue(name, as_values, holder, as_values(holder)))

    def _add(self, name: str, get: Callable[[Any], Any], key: Any, owner: int, steps: int) -> None:
        value = get(key)
        if isinstance(value, (ModuleType, FunctionType, type, property, staticmethod, classmethod)):
            self.enter(name, value, steps - (0 if isinstance(value, FunctionType) else 1))
            if not isinstance(value, FunctionType):
                return
        else:
            self.enter(name, value, steps - 1)
        self._found.setdefault((owner, key if is_plain(key) else id(key)), ReachedValue(name, get, key, value))


def _is_followed(value: Any) -> bool:
    """Tell whether an object, class or module may hold settings of the user's."""
    if isinstance(value, (Mapping, list, tuple, set, frozenset, deque)):
        return True
    if isinstance(value, ModuleType):
        return is_user_file(getattr(value, "__file__", None) or "<typed in>")
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.partition(".")[0] in _LIBRARIES or kind.__module__ == "builtins":
        return False
    if isinstance(value, type):
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        return is_user_file(file or "<typed in>")
    return hasattr(value, "__dict__") or hasattr(kind, "__slots__")


@functools.lru_cache(maxsize=1024)
def _list_mentioned(code: CodeType) -> FrozenSet[str]:
    """List the names that a function's code looks up, and its strings; those of functions inside it as well."""
    found = set(code.co_names)
    waiting = list(code.co_consts)
    while waiting:
        constant = waiting.pop()
        if isinstance(constant, str):
            found.add(constant)
        elif isinstance(constant, CodeType):
            found |= _list_mentioned(constant)
        elif isinstance(constant, (tuple, frozenset)):
            waiting += constant
    return frozenset(found)
