"""This package finds the place of a fault, where plain PyTorch and the port first part.

Values, gradients, updates and settings of both sides are compared. Steps are captured and replayed operator by
operator, which needs a torch that can capture: the names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:
    from porting.verify.fault_location.location import locate_fault as locate_fault
    from porting.verify.fault_location.reproduction import without_idle_reproduction as without_idle_reproduction

__all__, __getattr__, __dir__ = read_late_names(globals())
