"""This package keeps some values of a step for its backward pass, and computes the others again, to save memory.

The public names are loaded on first use: most steps keep what their backward pass needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.engines.recompute.plans import Plan as Plan
    from porting.engines.recompute.plans import plan_chen as plan_chen
    from porting.engines.recompute.plans import plan_everything as plan_everything
    from porting.engines.recompute.plans import plan_lower_sets as plan_lower_sets
    from porting.engines.recompute.value_units import UnitGraph as UnitGraph
    from porting.engines.recompute.value_units import statistics_written_by as statistics_written_by

__all__, __getattr__, __dir__ = read_late_names(globals())
