"""The answer of a stand-in to names that it does not have."""

from __future__ import annotations

from typing import Any, Callable, NoReturn

from ..errors import not_simulated

__all__ = ["refuse", "refuse_unknown_names"]


def refuse(name: str) -> NoReturn:
    """Raise `NotSimulatedError` for a name of a companion module, spelled as programs write it."""
    module = name.split(".")[0]
    not_simulated(name, f"`{module}` is a stand-in here, with the few names that programs need on the simulator")


def refuse_unknown_names(module: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a stand-in for `module`.

    Names that Python itself looks for are simply absent; the rest raise `NotSimulatedError`, an `AttributeError` too.
    """

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        refuse(f"{module}.{name}")

    return __getattr__
