"""A second run of `forward` that leaves no trace: what it changes is noted and put back, what it says is not heard."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import warnings
from collections import OrderedDict, deque
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FunctionType
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple

import torch
from torch import nn

from ..diagnostics.places import is_user_file
from ..module_attributes import NOT_THE_USERS

__all__ = ["Changes", "without_trace"]

Changes = Dict[str, Tuple[Any, Any]]
"""Attributes and globals by name, each with its value before and after a run."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, dict, set, deque)
# of what a module holds, nearly all
_OF_PYTHON = frozenset([*_PLAIN, *_CONTAINERS, tuple, OrderedDict, FunctionType, type])
_DEPTH = 3
_MOST_ITEMS = 100_000  # what is larger is data, which nobody fills in `forward`


@contextmanager
def without_trace(modules: Sequence[Tuple[str, nn.Module]]) -> Iterator[Changes]:
    """Undo at the end what a run of `forward` does to Python's side, with random generators moved on before it.

    What is undone: attributes of `modules` (named), of their classes and of objects that they hold, globals beside
    their classes, containers of these, and the state of random generators, global ones and held ones. Prints, warnings
    and logs go nowhere. The dictionary that the context gives has at the end what the run had changed, as far as it is
    plain values. An iterator that the run takes from has moved on.
    """
    changes: Changes = {}
    numpy = sys.modules.get("numpy")
    # the functions of `random` and of `numpy.random` are methods of one hidden generator each
    generators: List[Any] = [random.getstate.__self__, torch.default_generator]  # type: ignore[attr-defined]
    with ExitStack() as undone:
        for restore in map(_find_restorer, generators + ([numpy.random.get_state.__self__] if numpy else [])):
            undone.callback(restore)
        for space in _list_namespaces(modules):
            undone.callback(space.restore, changes)
        undone.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        undone.enter_context(contextlib.redirect_stdout(io.StringIO()))
        undone.enter_context(contextlib.redirect_stderr(io.StringIO()))
        undone.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # a value that `forward` draws is another one in this run, which is how it is found
        random.random()
        torch.rand(())
        if numpy is not None:
            numpy.random.random()
        yield changes


def _find_restorer(value: object) -> Any:
    """Return what gives a generator its present state back; None for anything else."""
    if type(value) in _OF_PYTHON:
        return None
    if isinstance(value, random.Random):
        return partial(value.setstate, value.getstate())
    if isinstance(value, torch.Generator):
        return partial(value.set_state, value.get_state())
    # a program that does not use numpy does not wait for it
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return partial(value.set_state, value.get_state())
    return None


class _Namespace:
    """What names stand for now, and what containers hold; `owner` is a class, a file, or a dictionary of attributes."""

    def __init__(self, prefix: str, owner: object) -> None:
        self._prefix, self._owner = prefix, owner
        self._before = self._read_names()
        self._contents: List[Tuple[str, Any, Any]] = []
        self._generators: List[Callable[[], Any]] = []
        for name, value in self._before.items():
            self._keep_value(name, value, _DEPTH)

    def _read_names(self) -> Dict[str, Any]:
        if isinstance(self._owner, dict):
            return {name: value for name, value in self._owner.items() if name not in NOT_THE_USERS}
        # what a `forward` may assign to beside functions, classes and modules, which stay what they are
        kinds = (*_PLAIN, *_CONTAINERS)
        return {
            name: value
            for name, value in vars(self._owner).items()
            if not name.startswith("__") and (isinstance(value, kinds) or _find_restorer(value) is not None)
        }

    def _keep_value(self, name: str, value: Any, depth: int) -> None:
        restore = _find_restorer(value)
        if restore is not None:
            self._generators.append(restore)
        if type(value) in _CONTAINERS and depth and len(value) <= _MOST_ITEMS:
            self._contents.append((name, value, value.copy()))
            for item in list(value.values() if isinstance(value, dict) else value):
                self._keep_value("", item, depth - 1)

    def restore(self, changes: Changes) -> None:
        """Put everything back, and add to `changes` what has become another plain value."""
        now = self._read_names()
        owner: Any = self._owner
        # the attributes of an object are put into its dictionary, past any `__setattr__` of the user's
        is_plain = isinstance(owner, dict)
        put = owner.__setitem__ if is_plain else partial(setattr, owner)
        drop = owner.__delitem__ if is_plain else partial(delattr, owner)
        for name in [*self._before, *(name for name in now if name not in self._before)]:
            before, after = self._before.get(name), now.get(name)
            if before is after and name in now and name in self._before:
                continue
            if isinstance(before, _PLAIN) and isinstance(after, _PLAIN) and before != after:
                changes[self._prefix + name] = (before, after)
            if name in self._before:
                put(name, before)
            else:
                drop(name)
        for name, container, content in self._contents:
            # inner containers have no name of their own
            if len(container) != len(content) and name:
                changes[self._prefix + name] = (f"{len(content)} items", f"{len(container)} items")
            _refill_container(container, content)
        for restore in self._generators:
            restore()


def _list_namespaces(modules: Sequence[Tuple[str, nn.Module]]) -> List[_Namespace]:
    """List the namespaces that a `forward` of `modules` is likely to change."""
    owners: Dict[int, Tuple[str, Any]] = {}
    kinds: Set[type] = set()
    for prefix, module in modules:
        owners.setdefault(id(vars(module)), (prefix, vars(module)))
        for name, value in vars(module).items():
            if _is_users_object(value):
                owners.setdefault(id(vars(value)), (f"{prefix}{name}.", vars(value)))
        if type(module) in kinds:
            continue
        kinds.add(type(module))
        for kind in type(module).__mro__:
            file = _find_users_file(kind)
            if file is not None:
                owners.setdefault(id(kind), (f"{kind.__name__}.", kind))
                owners.setdefault(id(file), ("", file))
    return [_Namespace(prefix, owner) for prefix, owner in owners.values()]


def _is_users_object(value: object) -> bool:
    """Tell whether `value` holds attributes that a `forward` may change; tensors and modules are looked after."""
    if type(value) in _OF_PYTHON:
        return False
    if isinstance(value, (torch.Tensor, nn.Module, type)) or callable(value) or not hasattr(value, "__dict__"):
        return False
    return _find_users_file(type(value)) is not None


def _find_users_file(kind: type) -> Any:
    """Return the module that defines the class `kind`, as far as it is the user's; else None."""
    file = sys.modules.get(kind.__module__)
    return file if file is not None and is_user_file(getattr(file, "__file__", None) or "<typed in>") else None


def _refill_container(container: Any, content: Any) -> None:
    """Give a container its content back, touching what differs alone: it may be what this function's names live in."""
    if isinstance(container, dict):
        for key in [key for key in container if key not in content]:
            del container[key]
        for key, value in content.items():
            if key not in container or container[key] is not value:
                container[key] = value
    elif isinstance(container, set):
        container &= content
        container |= content
    elif len(container) != len(content) or any(item is not other for item, other in zip(container, content)):
        container.clear()
        container.extend(content)
