"""Findings that do not stop the work, shown through Python's `warnings`."""

from __future__ import annotations

import warnings
from typing import Any, Dict

from porting.diagnostics import Finding, render

__all__ = ["PortingWarning", "notify"]


class PortingWarning(UserWarning):
    """A finding shown as a warning: its text is the rendered finding, `.finding` the same as data."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return render(self.finding)


def notify(finding: Finding, stacklevel: int = 2) -> None:
    """Warn about `finding` at its place; without one, as `warnings.warn` would with this `stacklevel`.

    Python's own filters apply: by default the same finding is shown once for each line of the user's that leads to
    it, and `warnings.simplefilter("error", PortingWarning)` turns findings into errors.

    >>> with warnings.catch_warnings(record=True) as shown:
    ...     warnings.simplefilter("always")
    ...     notify(Finding("B006", "3 samples are dropped"))
    >>> shown[0].message.finding.code
    'B006'
    """
    warning = PortingWarning(finding)
    if finding.place is None:
        warnings.warn(warning, stacklevel=stacklevel + 1)
    else:
        warnings.warn_explicit(warning, PortingWarning, finding.place.file, finding.place.line, registry=_ALREADY_SHOWN)


# Python keeps here what its filters let pass once, as it does in each module for `warnings.warn`.
_ALREADY_SHOWN: Dict[Any, Any] = {}
