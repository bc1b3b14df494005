"""A second run of `forward` that leaves no trace: what it changes is noted and put back, what it says is not heard."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import warnings
from collections import deque
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import torch
from torch import nn

from ..diagnostics.places import is_user_file
from ..module_attributes import NOT_THE_USERS

__all__ = ["Changes", "without_trace"]

Changes = Dict[str, Tuple[Any, Any]]
"""Attributes and globals by name, each with its value before and after a run."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, dict, set, deque)
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
    with ExitStack() as undone:
        for restore in _generators():
            undone.callback(restore)
        spaces = _list_namespaces(modules)
        for space in spaces:
            undone.callback(space.restore, changes)
        undone.enter_context(_silence_output())
        _move_generators()
        yield changes


@contextmanager
def _silence_output() -> Iterator[None]:
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
    finally:
        logging.disable(disabled)


# -- generators --------------------------------------------------------------------------------------------------------


def _generators() -> List[Callable[[], Any]]:
    """Return what gives the global generators the states that they have now."""
    state, torch_state = random.getstate(), torch.get_rng_state()
    restore: List[Callable[[], Any]] = [lambda: random.setstate(state), lambda: torch.set_rng_state(torch_state)]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy_state = numpy.random.get_state()
        restore.append(lambda: numpy.random.set_state(numpy_state))
    return restore


def _move_generators() -> None:
    random.random()
    torch.rand(())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.random()


def _restorer_of_generator(value: Any) -> Any:
    """Return what gives a generator its present state back; None for anything else."""
    if isinstance(value, random.Random):
        state = value.getstate()
        return lambda: value.setstate(state)
    if isinstance(value, torch.Generator):
        tensor = value.get_state()
        return lambda: value.set_state(tensor)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator.state
        return lambda: setattr(value.bit_generator, "state", bits)
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        old = value.get_state()
        return lambda: value.set_state(old)
    return None


# -- attributes and globals --------------------------------------------------------------------------------------------


class _Namespace:
    """The names of a module, an object, a class or a file, with what they stand for now and what containers hold.

    `read` lists them, `put` and `drop` change them.
    """

    def __init__(
        self,
        prefix: str,
        read: Callable[[], Mapping[str, Any]],
        put: Callable[[str, Any], None],
        drop: Callable[[str], None],
    ) -> None:
        self._prefix, self._read, self._put, self._drop = prefix, read, put, drop
        self._before = dict(read())
        self._contents: List[Tuple[str, Any, Any]] = []
        self._generators: List[Callable[[], Any]] = []
        for name, value in self._before.items():
            self._keep(name, value, _DEPTH)

    def _keep(self, name: str, value: Any, depth: int) -> None:
        restore = _restorer_of_generator(value)
        if restore is not None:
            self._generators.append(restore)
        if type(value) in _CONTAINERS and depth and len(value) <= _MOST_ITEMS:
            self._contents.append((name, value, value.copy()))
            for item in list(value.values() if isinstance(value, dict) else value):
                self._keep("", item, depth - 1)

    def restore(self, changes: Changes) -> None:
        """Put everything back, and add to `changes` what has become another plain value."""
        now = dict(self._read())
        for name in [*self._before, *(name for name in now if name not in self._before)]:
            before, after = self._before.get(name), now.get(name)
            if before is after and name in now and name in self._before:
                continue
            if isinstance(before, _PLAIN) and isinstance(after, _PLAIN) and before != after:
                changes[self._prefix + name] = (before, after)
            if name in self._before:
                self._put(name, before)
            else:
                self._drop(name)
        for name, container, content in self._contents:
            if len(container) != len(content) and name:
                changes[self._prefix + name] = (f"{len(content)} items", f"{len(container)} items")
            _refill(container, content)
        for restore in self._generators:
            restore()


def _list_namespaces(modules: Sequence[Tuple[str, nn.Module]]) -> List[_Namespace]:
    """List the namespaces that a `forward` of `modules` is likely to change."""
    spaces: Dict[int, _Namespace] = {}
    for prefix, module in modules:
        _add_dictionary(spaces, prefix, vars(module))
        for name, value in list(vars(module).items()):
            if _is_users_object(value):
                _add_dictionary(spaces, f"{prefix}{name}.", vars(value))
        for kind in type(module).__mro__:
            file = sys.modules.get(kind.__module__)
            if file is not None and is_user_file(getattr(file, "__file__", None) or "<typed in>"):
                _add_owner(spaces, f"{kind.__name__}.", kind)
                _add_owner(spaces, "", file)
    return list(spaces.values())


def _add_dictionary(spaces: Dict[int, _Namespace], prefix: str, values: Dict[str, Any]) -> None:
    if id(values) not in spaces:
        spaces[id(values)] = _Namespace(
            prefix,
            lambda: {name: value for name, value in values.items() if name not in NOT_THE_USERS},
            values.__setitem__,
            values.__delitem__,
        )


def _add_owner(spaces: Dict[int, _Namespace], prefix: str, owner: Any) -> None:
    if id(owner) not in spaces:
        spaces[id(owner)] = _Namespace(
            prefix,
            lambda: {name: value for name, value in vars(owner).items() if _may_change(name, value)},
            partial(setattr, owner),
            partial(delattr, owner),
        )


def _may_change(name: str, value: Any) -> bool:
    """Tell whether a class or file may have `value` for a name that a `forward` assigns to."""
    if name.startswith("__"):
        return False
    return isinstance(value, (*_PLAIN, *_CONTAINERS)) or _restorer_of_generator(value) is not None


def _is_users_object(value: Any) -> bool:
    """Tell whether `value` holds attributes that a `forward` may change; tensors and modules are looked after."""
    if isinstance(value, (torch.Tensor, nn.Module, type)) or callable(value) or not hasattr(value, "__dict__"):
        return False
    file = sys.modules.get(type(value).__module__)
    return file is not None and is_user_file(getattr(file, "__file__", None) or "<typed in>")


def _refill(container: Any, content: Any) -> None:
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
