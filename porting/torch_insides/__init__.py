"""Name the parts of torch that are not public, and say which are missing; nothing else in the product names any.

A module has the parts of one subject and a `probe`, which returns what is lost with this torch; empty if nothing is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Dict, Set

from ..diagnostics import Finding, Severity, log_finding

__all__ = ["SUBJECTS", "probe_all", "require_all", "tell_loss"]

SUBJECTS = (
    "autograd",
    "compiler",
    "fake_tensors",
    "loaders",
    "modes",
    "modules",
    "operators",
    "optimizers",
    "tensors",
    "trees",
)
"""The modules of parts that a port has in its own process. Those of Inductor are looked for where it compiles."""


def probe_all() -> Dict[str, str]:
    """Return what is lost for each subject of which this torch lacks a part.

    >>> probe_all()
    {}
    """
    found = {name: import_module(f"{__name__}.{name}").probe() for name in (*SUBJECTS, "programs")}
    return {name: loss for name, loss in found.items() if loss}


def require_all() -> None:
    """Raise MissingPart if this torch lacks a part without which no step can be captured."""
    for name in SUBJECTS:
        import_module(f"{__name__}.{name}").PARTS.require()


def tell_loss(message: str) -> None:
    """Log a note E013 with this message, once in a process."""
    if message not in _TOLD:
        _TOLD.add(message)
        log_finding(Finding("E013", message=message, severity=Severity.NOTE))


_TOLD: Set[str] = set()
