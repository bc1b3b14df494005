"""Exchange functions of modules and classes for a while, and restore them however it ends.

`Remedies` exchanges libraries' functions with it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Tuple

from porting.torch_insides.exchanged import exchanged

__all__ = ["find_attribute", "is_importable_now", "replaced_attribute"]

_MARK = "_porting_stands_for"


def is_importable_now(target: str) -> bool:
    """Tell whether the module of "module:Class.method" is imported; nothing is imported for a patch."""
    return target.partition(":")[0] in sys.modules


def find_attribute(target: str) -> Tuple[Any, str]:
    """Find what holds the function "module:Class.method", and by which name; AttributeError if it is not there."""
    module, _colon, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = sys.modules[module]
    for part in owners:
        owner = getattr(owner, part)
    getattr(owner, name)
    return owner, name


@contextmanager
def replaced_attribute(owner: object, name: str, made: Callable[..., Any], *, key: object = None) -> Iterator[None]:
    """Exchange the function `owner.name` for `made` while the context lasts.

    One that is exchanged already by the same `key` is left as it is, so that contexts may lie in each other.

    >>> class Greeting:
    ...     def say(self):
    ...         return "hello"
    >>> with replaced_attribute(Greeting, "say", lambda self: "HELLO"):
    ...     Greeting().say()
    'HELLO'
    >>> Greeting().say()
    'hello'
    """
    original = getattr(owner, name)
    if key is not None and getattr(original, _MARK, None) == key:
        yield
        return
    setattr(made, _MARK, key)
    with exchanged(owner, name, lambda _original: made):
        yield
