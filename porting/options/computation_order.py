"""Read the texts that name computation orders, which say what the backward pass computes again, in which budget.

`PortOptions` checks them, and engines, exports and the simulator follow them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping, Optional, Tuple

from porting.diagnostics import ExecutableError

__all__ = ["POLICIES", "ComputationOrder", "is_computation_order", "refuse_order"]

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "none": "keep every value that the backward pass needs; also called dummy",
        "dummy2": "forget everything and compute the whole forward pass again",
        "chen": "about sqrt(n) segments, cut where one value crosses; chen:MB sets the bytes of a segment",
        "gttime": "the least recomputation within the budget gttime:MB, by default the least possible peak",
        "gtmem": "the most recomputation within the budget gtmem:MB, by default the least possible peak",
        "custom_": "by hand: custom_CF0_CF1_FFo0_... computes forward and forgets the results of units",
    }
)
"""The policies and what they do."""

_MEGABYTE = 1 << 20
_BUDGETED = ("chen", "gttime", "gtmem")
_CUSTOM = re.compile(r"(CF|FF[iot]|CB)(\d*)")


@dataclass(frozen=True)
class ComputationOrder:
    """A policy and its numbers, as a text such as `chen` or `gttime:64` says them.

    >>> ComputationOrder.of("gttime:64")
    ComputationOrder(policy='gttime', budget_bytes=67108864, commands=())
    >>> ComputationOrder.of("dummy").policy
    'none'
    """

    policy: str = "none"
    budget_bytes: Optional[int] = None
    commands: Tuple[Tuple[str, int], ...] = ()

    @classmethod
    def of(cls, text: str) -> ComputationOrder:
        """Read `text`; raise ExecutableError E026 for a policy that there is not, or a budget that is none."""
        name, colon, number = text.strip().partition(":")
        if name.startswith("custom_") and not colon:
            return cls("custom", commands=_read_commands(name))
        name = "none" if name == "dummy" else name
        if name not in POLICIES or name == "custom_":
            raise refuse_order(f"there is no computation order called `{text}`")
        if not colon:
            return cls(name)
        if name not in _BUDGETED:
            raise refuse_order(f"`{name}` takes no budget")
        try:
            megabytes = float(number)
        except ValueError:
            megabytes = -1.0
        if not 0 < megabytes < 1e9:
            raise refuse_order(f"`{number}` is no budget: it is a number of megabytes")
        return cls(name, int(megabytes * _MEGABYTE))

    @property
    def recomputes(self) -> bool:
        """Whether anything is computed again."""
        return self.policy != "none"


def is_computation_order(value: object) -> bool:
    """Tell whether `value` is the text of an order.

    >>> is_computation_order("chen:64"), is_computation_order("chens")
    (True, False)
    """
    try:
        return isinstance(value, str) and bool(ComputationOrder.of(value))
    except ExecutableError:
        return False


def refuse_order(message: str) -> ExecutableError:
    """Make the error E026 that lists the orders that there are."""
    known = tuple(f"`{name}`: {meaning}" for name, meaning in POLICIES.items())
    return ExecutableError.of("E026", message=message, notes=known, help="take one of these")


def _read_commands(name: str) -> Tuple[Tuple[str, int], ...]:
    commands = []
    for word in name[len("custom_") :].replace(",", "_").split("_"):
        match = _CUSTOM.fullmatch(word)
        if match is None or bool(match[2]) == (match[1] == "CB"):
            raise refuse_order(f"`{word}` is no command of a custom computation order")
        commands.append((match[1], int(match[2] or 0)))
    return tuple(commands)
