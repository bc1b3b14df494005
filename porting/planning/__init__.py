"""Plan memory: estimate what a step needs before there is a device, and what to change if it does not fit.

The public names are loaded on first use: most steps are far from the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting import capture  # noqa: F401 - says so first where torch is too old for it
from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.planning.memory_look import MemoryReport as MemoryReport
    from porting.planning.memory_look import memory_report as memory_report
    from porting.planning.memory_model import StageMemory as StageMemory
    from porting.planning.remedies import Remedy as Remedy
    from porting.planning.remedies import list_first_remedy as list_first_remedy
    from porting.planning.remedies import list_remedies as list_remedies
    from porting.planning.step_walk import look_at_step as look_at_step
    from porting.planning.step_walk import number_stages as number_stages
    from porting.planning.step_walk import walk_step as walk_step

__all__, __getattr__, __dir__ = read_late_names(globals())
