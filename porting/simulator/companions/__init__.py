"""Stand in for modules that PopTorch programs import beside it. Each stand-in is small and names what it leaves out.

Each has the names that known programs use. Any other raises the error S001, which names the stand-in.
Under `porting run` they are provided where the real ones are missing; elsewhere `provide` does it.
"""

from __future__ import annotations

from typing import Any, Callable, NoReturn

from ...aliases import COMPANIONS, install_aliases
from ..errors import not_simulated

__all__ = ["provide", "refuse", "refuse_unknown_names"]


def provide() -> None:
    """Let this process import `popart`, `popdist`, `horovod.torch`, ... where they are not installed.

    >>> provide()
    >>> import popart
    >>> int(popart.SyntheticDataMode.RandomNormal)
    2
    """
    install_aliases(replace={}, provide=COMPANIONS)


def refuse(name: str) -> NoReturn:
    """Raise `NotSimulatedError` for a name of a companion module, spelled as programs write it."""
    module = name.split(".")[0]
    not_simulated(name, f"`{module}` is a stand-in here, with the few names that programs need on the simulator")


def refuse_unknown_names(module: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a stand-in for `module`.

    Names that Python itself looks for are simply absent; the rest raise `NotSimulatedError`, an `AttributeError` too.
    """

    def __getattr__(name: str) -> Any:
        # Python asks for some itself, such as `__path__`, and must see that they are not there
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        refuse(f"{module}.{name}")

    return __getattr__
