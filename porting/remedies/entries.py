"""Define the entries of the two tables: remedies, which change a library's code, and substitutes for operators.

Modules of this package and programs fill the tables with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Tuple, Union

__all__ = ["Edit", "Fallback", "OperatorSubstitute", "Patch", "Remedy", "Target"]

Target = Union[str, Callable[..., Any]]
"""What is substituted: a function or method of torch, or "module:Class.method"."""


class Fallback:
    """What a substitute returns for arguments that it has no answer to: the next is asked, the host, then torch."""


@dataclass(frozen=True)
class OperatorSubstitute:
    """What is computed instead of an operator or a module's `forward`.

    `compute` takes the operator's own arguments (for a module: the module first) and returns its result, or `Fallback`.
    One that runs `on_host` runs on the CPU in the middle of the device's step: in inference only.
    """

    name: str
    target: Target
    compute: Callable[..., Any]
    on_host: bool = False


@dataclass(frozen=True)
class Edit:
    """A change in the source of a function: `old`, which is there exactly `count` times, becomes `new`.

    Both have the same number of lines, so that places in messages stay true.
    """

    old: str
    new: str
    count: int = 1


@dataclass(frozen=True)
class Patch:
    """A change of one function of a library, `target`: either `edits` of its source, or a `replacement`.

    A replacement takes the original function first, then its arguments.
    """

    target: str
    edits: Tuple[Edit, ...] = ()
    replacement: Union[Callable[..., Any], None] = None

    @property
    def module(self) -> str:
        """The name of the module that the function is in."""
        return self.target.partition(":")[0]


@dataclass(frozen=True)
class Remedy:
    """Why a library's code cannot be compiled as it is, and what is changed while a port is.

    It is for versions of `library` from `first` up to, and without, `below`; several of one `name` are for several
    ranges. `reason` says what the device lacks.
    `functions` are torch functions that the library's code gets another answer from, by what they are called with:
    a substitute's `compute`, which may return `Fallback`.
    """

    name: str
    library: str
    first: str
    below: str
    reason: str
    patches: Tuple[Patch, ...] = ()
    functions: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
