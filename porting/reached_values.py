"""List the values of Python that a step has read outside of tensors; `CompiledIn` compares them in later calls.

A capture sees which attributes of modules are read. What functions read beside these is found in their code: globals,
closure cells, defaults, and whatever their names and strings pick out of dictionaries and objects from there on.
"""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from collections import deque
from dis import get_instructions, opmap
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Callable, Collection, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Set, Tuple

import torch
from torch import nn

from .diagnostics.places import is_user_file

__all__ = ["ReachedValue", "is_plain", "is_same", "is_written", "list_reached_values"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
# a weak reference is compared by what it refers to, and tensors by their numbers
_BY_IDENTITY = (torch.Tensor, weakref.ref)
_MOST_ITEMS = 64
_MOST_HOLDERS = 256
_MOST_STEPS = 6  # from a function to a value: `trainer.config.losses["beta"].weight`
# their objects hold no setting of a step, but half of the program
_LIBRARIES = frozenset(["torch", "numpy", "porting", "poptorch", "logging", "threading", "typing", "re"])
_CONTAINERS = (Mapping, list, tuple, set, frozenset, deque)
_ITERATES = frozenset(["items", "values", "keys"])
_ASKS = frozenset(["get", "getattr", "hasattr", "AttributeError", "KeyError"])
_OF_TENSORS = frozenset(dir(torch.Tensor))
_GET_ITER = opmap["GET_ITER"]
_CONTAINS = opmap.get("CONTAINS_OP", opmap["COMPARE_OP"])  # Python 3.8 has no instruction of its own for `in`
# methods that run without being named: by an index, an operator, a `with`
_UNNAMED = """__bool__ __contains__ __enter__ __float__ __get__ __getattr__ __getitem__ __int__ __iter__ __len__
__mul__ __next__ __rmul__""".split()
_OF_CUSTOM_FUNCTIONS = ("forward", "setup_context", "backward", "vjp")
_read_parts = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
_read_cell = operator.attrgetter("cell_contents")


def is_plain(value: object) -> bool:
    """Tell whether a value is a number, a text or the like, or a short tuple of them.

    >>> is_plain(0.5), is_plain((1, 2)), is_plain([1, 2])
    (True, True, False)
    """
    if isinstance(value, _PLAIN):
        return True
    return type(value) is tuple and len(value) <= _MOST_ITEMS and all(isinstance(item, _PLAIN) for item in value)


def is_same(before: object, now: object) -> bool:
    """Tell whether a value is unchanged: the same object, or an equal one where they can be compared.

    >>> is_same([1, (2,)], [1, (2,)]), is_same(torch.ones(1), torch.ones(1))
    (True, False)
    """
    if before is now or isinstance(before, _BY_IDENTITY) or isinstance(now, _BY_IDENTITY):
        return before is now
    if isinstance(before, (list, tuple)) and isinstance(now, (list, tuple)):
        return len(before) == len(now) and all(map(is_same, before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(is_same(before[key], now[key]) for key in before)
    try:
        return bool(before == now)
    except Exception:  # arrays have no truth value, and a user's own class may raise anything
        return False


def is_written(value: object) -> bool:
    """Tell whether a value is a function of the user's."""
    return isinstance(value, FunctionType) and _is_users_file(value.__code__.co_filename)


class _Gone:
    """Stands for a value that no longer exists."""

    def __repr__(self) -> str:
        return "gone"


_GONE = _Gone()


class ReachedValue(NamedTuple):
    """A value that a step may have read: `get(key)` returns the present one, `name` is the user's expression for it."""

    name: str
    get: Callable[[Any], Any]
    key: Any
    value: Any
    owner: int = 0

    def read(self) -> Any:
        """Return the present value."""
        try:
            return self.get(self.key)
        except Exception:  # a user's own class may raise anything
            return _GONE

    @property
    def identity(self) -> Tuple[int, Any]:
        """The identity among all values: the holder and the key."""
        if self.get is tuple or self.get is _read_cell:
            return id(self.key), None
        # a class shows what it holds by another object each time
        return self.owner or self.holder, self.key

    @property
    def holder(self) -> int:
        """The object that `get` reads from; values of one holder are read together."""
        return id(self.key if self.get is _read_cell else getattr(self.get, "__self__", self.get))


def list_reached_values(
    functions: Iterable[Tuple[str, Any]], objects: Iterable[Tuple[str, Any]], *, known: Iterable[nn.Module]
) -> List[ReachedValue]:
    """List the values that code of the user's can reach from `functions` that a step runs and `objects` that it read.

    Both come with their names. Attributes of the modules that are `known` are watched elsewhere.

    >>> settings = {"beta": 0.5, "epoch": 3}
    >>> def loss(output, label):
    ...     return output.sum() * settings["beta"]
    >>> [reached.name for reached in list_reached_values([("loss", loss)], [], known=[])]
    ['settings', 'loss', "settings['beta']"]
    """
    walk = _Walk(known)
    for name, each in (*functions, *objects):
        walk.enter(name, each)
    return walk.finish()


class _Walk:
    """Follows functions and objects; what code mentions picks the attributes and entries that are followed."""

    def __init__(self, known: Iterable[nn.Module]) -> None:
        self._mentioned: Set[str] = set()
        self._iterated: Set[str] = set()  # mentioned by code that goes through something
        self._asked: Dict[CodeType, FrozenSet[str]] = {}  # attributes that may be missing, by the code that reads them
        self._seen: Dict[int, Any] = {id(module): module for module in known}
        self._holders: List[Tuple[str, Any, int]] = []
        self._found: Dict[Tuple[int, Any], ReachedValue] = {}

    def finish(self) -> List[ReachedValue]:
        """Look into objects until no code mentions anything new, and return all values that were reached."""
        looked_at, num_mentioned = 0, 0
        while looked_at < len(self._holders) < _MOST_HOLDERS or num_mentioned < len(self._mentioned) + len(self._asked):
            # an inspected object may hold a value that is mentioned since
            first = looked_at if num_mentioned == len(self._mentioned) + len(self._asked) else 0
            looked_at, num_mentioned = len(self._holders), len(self._mentioned) + len(self._asked)
            for name, holder, steps in self._holders[first:looked_at]:
                self._look_into(name, holder, steps)
        return list(self._found.values())

    def enter(self, name: str, value: object, steps: int = _MOST_STEPS) -> None:
        """Follow `value` unless it is plain, a tensor, known, or a library's."""
        if id(value) in self._seen or steps == 0 or _is_nothing_to_follow(value):
            return
        self._seen[id(value)] = value
        if not isinstance(value, _CONTAINERS) and not _is_users(value):
            steps = 1  # of another library's object the plain attributes alone, such as those of a configuration
        for part in _list_parts(value):
            self.enter(name, part, steps)
        if isinstance(value, FunctionType):
            self._read_function(name, value, steps)
        elif isinstance(value, (ModuleType, type)):
            if _is_users(value):
                self._holders.append((name, value, steps))
                for part in _list_run_by_torch(value):
                    self._add(f"{name}.{part}", functools.partial(getattr, value), part, id(value), steps)
        elif isinstance(value, _CONTAINERS) or _has_attributes(value):
            self._holders.append((name, value, steps))

    def _read_function(self, name: str, function: FunctionType, steps: int) -> None:
        """Record the names in a function's code; follow its globals, cells and defaults, if it is the user's."""
        mentioned = _collect_mentioned(function.__code__)
        self._mentioned |= mentioned
        if _iterates(function.__code__):
            self._iterated |= mentioned
        if not _is_users_file(function.__code__.co_filename):
            return
        self._asked[function.__code__] = _collect_asked(function.__code__)
        around = function.__globals__
        for variable in (mentioned if "globals" in mentioned else _collect_globals(function.__code__)) & around.keys():
            self._add(variable, around.get, variable, id(around), steps)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self._add(variable, _read_cell, cell, id(cell), steps)
            except ValueError:
                pass  # a variable that has no value yet
        parts = _read_parts(function)
        self._found.setdefault((id(function), None), ReachedValue(name, _read_parts, function, parts))
        for defaults in parts[1:]:
            self.enter(name, defaults, steps - 1)
        for attribute in vars(function):
            self._add(f"{name}.{attribute}", vars(function).get, attribute, id(function), steps)

    def _add_missing(self, name: str, get: Callable[[Any], Any], holder: object, present: Iterable[str]) -> None:
        """Add missing attributes that code reads of a holder, in a method or by the holder's name: they may appear."""
        methods = [vars(kind).values() for kind in type(holder).__mro__ if _is_users(kind)]
        codes = {each.__code__ for values in methods for each in values if isinstance(each, FunctionType)}
        near = (t for code, t in self._asked.items() if code in codes or _last_name(name) in _collect_mentioned(code))
        for asked in frozenset().union(*near).difference(present):
            self._found.setdefault((id(holder), asked), ReachedValue(f"{name}.{asked}", get, asked, None, id(holder)))

    def _look_into(self, name: str, holder: object, steps: int) -> None:
        """Add the mentioned values of an object, a class, a module of Python's, a dictionary or a list."""
        if isinstance(holder, Mapping):
            self._look_into_mapping(name, holder, steps)
        elif isinstance(holder, _CONTAINERS):
            self._look_into_items(name, holder, steps)
        nothing: Dict[str, Any] = {}
        attributes = _read(holder, "__dict__", nothing)
        # torch's layers list the settings that their `forward` reads
        names = {*self._mentioned, *_read(type(holder), "__constants__", ())} & attributes.keys()
        # `x.dtype` in `forward` is no sign that a configuration's `dtype` is read
        for mentioned in names if _is_users(holder) else names - _OF_TENSORS:
            self._add(f"{name}.{mentioned}", attributes.get, mentioned, id(holder), steps)
        if isinstance(holder, ModuleType):
            return
        if _is_users(holder) and attributes is not nothing and not isinstance(holder, type):
            self._add_missing(name, attributes.get, holder, {*attributes, *dir(type(holder))})
        for kind in (holder if isinstance(holder, type) else type(holder)).__mro__:
            if not _is_users(kind):
                continue
            for mentioned in self._mentioned & vars(kind).keys() - attributes.keys():
                self._add_of_class(f"{name}.{mentioned}", holder, kind, mentioned, steps)
                if attributes is not nothing:  # an attribute of the object itself may come to stand before it
                    self._add(f"{name}.{mentioned}", attributes.get, mentioned, id(holder), steps)

    def _add_of_class(self, name: str, holder: object, kind: type, mentioned: str, steps: int) -> None:
        """Add an attribute of the class `kind` of `holder`: a value, a method, or the value of a slot."""
        value = vars(kind)[mentioned]
        if hasattr(value, "__get__") and hasattr(value, "__set__") and not isinstance(value, property):
            try:
                self._add(name, functools.partial(getattr, holder), mentioned, id(holder), steps)
            except AttributeError:
                pass  # a slot without a value
        else:
            self._add(name, vars(kind).get, mentioned, id(kind), steps)

    def _look_into_mapping(self, name: str, mapping: Mapping[Any, Any], steps: int) -> None:
        keys = [key for key in self._mentioned if key in mapping]
        if len(mapping) <= _MOST_ITEMS and (not keys or _last_name(name) in self._iterated):
            keys = list(mapping)
            self._found.setdefault((id(mapping), None), ReachedValue(name, tuple, mapping, tuple(mapping)))
        for key in keys:
            self._add(f"{name}[{key!r}]", mapping.get, key, id(mapping), steps)
        self._add_missing(name, mapping.get, mapping, mapping)

    def _look_into_items(self, name: str, items: Collection[Any], steps: int) -> None:
        """Follow each item of a sequence or set, which is one value: its items as they are now."""
        if len(items) > _MOST_ITEMS:
            return
        for number, item in enumerate(items):
            self.enter(f"{name}[{number}]", item, steps - 1)
        # a tuple can only hold what is written to
        if not isinstance(items, (tuple, frozenset)) or any(isinstance(item, torch.Tensor) for item in items):
            self._found.setdefault((id(items), None), ReachedValue(name, tuple, items, tuple(items)))

    def _add(self, name: str, get: Callable[[Any], Any], key: object, owner: int, steps: int) -> None:
        value = get(key)
        if isinstance(value, (ModuleType, FunctionType, type, property, staticmethod, classmethod)):
            self.enter(name, value, steps - (0 if isinstance(value, FunctionType) else 1))
            if isinstance(value, (property, staticmethod, classmethod)):
                return
        else:
            self.enter(name, value, steps - 1)
        self._found.setdefault((owner, key if is_plain(key) else id(key)), ReachedValue(name, get, key, value, owner))


def _list_run_by_torch(value: object) -> Tuple[str, ...]:
    """List the methods that torch runs of a custom autograd function."""
    return _OF_CUSTOM_FUNCTIONS if isinstance(value, type) and issubclass(value, torch.autograd.Function) else ()


def _list_parts(value: object) -> Tuple[Any, ...]:
    """List the functions that run when an object is called, and their bound values."""
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, property):
        return (value.fget,)
    if isinstance(value, weakref.ref):
        return (value(),)
    if isinstance(value, (staticmethod, classmethod)):
        return (value.__func__,)
    if isinstance(value, FunctionType):
        return (_read(value, "__wrapped__", None),)  # what a decorator stands before
    called = _read(type(value), "forward" if isinstance(value, nn.Module) else "__call__", None)
    unnamed = [each for each in (_read(type(value), name, None) for name in _UNNAMED) if is_written(each)]
    return (*unnamed, called) if isinstance(called, FunctionType) else tuple(unnamed)


def _is_nothing_to_follow(value: object) -> bool:
    if is_plain(value) or isinstance(value, torch.Tensor):
        return True
    if isinstance(value, MethodType):  # `apply` of a custom function is torch's, and its class the user's
        return _is_nothing_to_follow(value.__func__) and _is_nothing_to_follow(value.__self__)
    if isinstance(value, functools.partial):  # its arguments to a function of a library may be the user's
        return str(_read(value.func, "__module__", "")).startswith("porting.")
    if isinstance(value, nn.Module) or is_written(value):
        return False
    return str(_read(value, "__module__", "")).partition(".")[0] in _LIBRARIES


def _has_attributes(value: object) -> bool:
    return _read(value, "__dict__", None) is not None or hasattr(type(value), "__slots__")


def _read(value: object, name: str, default: object) -> Any:
    """Return an attribute; a user's own class may raise anything where it has none."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def _is_users(value: object) -> bool:
    """Tell whether a function, a class or a module of Python's is the user's own, or that of an object."""
    if isinstance(value, ModuleType):
        return _is_users_file(getattr(value, "__file__", None) or "<typed in>")
    if isinstance(value, MethodType):
        return _is_users(value.__func__) or _is_users(value.__self__)
    if isinstance(value, FunctionType):
        return is_written(value) or _is_users(_read(value, "__wrapped__", None))
    if isinstance(value, (functools.partial, property, staticmethod, classmethod)):
        return True  # its parts are compared by themselves
    return _is_users_class(value if isinstance(value, type) else type(value))


@functools.lru_cache(maxsize=1024)
def _is_users_class(kind: type) -> bool:
    if kind.__module__ in ("argparse", "types") and kind.__name__ in ("Namespace", "SimpleNamespace"):
        return True
    if kind.__module__ == "builtins" or kind.__module__.partition(".")[0] in _LIBRARIES:
        return False
    return _is_users_file(getattr(sys.modules.get(kind.__module__), "__file__", None) or "<typed in>")


@functools.lru_cache(maxsize=1024)
def _is_users_file(file: str) -> bool:
    """Tell whether a user has written a file; files installed beside torch belong to others."""
    return is_user_file(file) and "-packages" not in file


def _last_name(name: str) -> str:
    """Return the last name of a path: `losses` of `trainer.losses["beta"]`."""
    return name.rpartition(".")[2].partition("[")[0]


@functools.lru_cache(maxsize=1024)
def _iterates(code: CodeType) -> bool:
    """Tell whether a function's code, or that of one inside it, goes through a container."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return _GET_ITER in code.co_code[::2] or bool(_ITERATES & set(code.co_names)) or any(map(_iterates, inner))


@functools.lru_cache(maxsize=1024)
def _collect_mentioned(code: CodeType) -> FrozenSet[str]:
    """Return the names that a function's code looks up, and its strings; those of functions inside it as well."""
    found = set(code.co_names)
    waiting = list(code.co_consts)
    while waiting:
        constant = waiting.pop()
        if isinstance(constant, str):
            found.add(constant)
        elif isinstance(constant, CodeType):
            found |= _collect_mentioned(constant)
        elif isinstance(constant, (tuple, frozenset)):
            waiting += constant
    return frozenset(found)


@functools.lru_cache(maxsize=1024)
def _collect_asked(code: CodeType) -> FrozenSet[str]:
    """Return the names that code reads where they may be missing, as by `getattr(x, "beta", 1.0)`."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    if not (_ASKS & set(code.co_names) or _CONTAINS in code.co_code[::2]):
        return frozenset().union(*map(_collect_asked, inner))
    texts = (text for text in code.co_consts if isinstance(text, str) and text.isidentifier())
    names = code.co_names if "AttributeError" in code.co_names else ()
    return frozenset([*texts, *names]).union(*map(_collect_asked, inner))


@functools.lru_cache(maxsize=1024)
def _collect_globals(code: CodeType) -> FrozenSet[str]:
    """Return the globals that code reads: an attribute of the same name is none of them."""
    names = (each.argval for each in get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return frozenset(names).union(*(_collect_globals(each) for each in code.co_consts if isinstance(each, CodeType)))
