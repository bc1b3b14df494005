"""This package plans a step before there is hardware: its memory, its stages, its speed, and what to trade.

The public names are loaded on first use: most steps are far from the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting import capture  # noqa: F401 - says so first where torch is too old for it
from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.adapters.stage_calls import number_stages as number_stages
    from porting.planning.loader_rate import LoaderRate as LoaderRate
    from porting.planning.loader_rate import measure_loader as measure_loader
    from porting.planning.memory_model import StageMemory as StageMemory
    from porting.planning.plan_record import Plan as Plan
    from porting.planning.plan_text import format_change as format_change
    from porting.planning.planner import make_plan as make_plan
    from porting.planning.planner import memory_report as memory_report
    from porting.planning.planner import plan as plan
    from porting.planning.profiles import Calibration as Calibration
    from porting.planning.profiles import calibrate as calibrate
    from porting.planning.profiles import read_profile as read_profile
    from porting.planning.reduction import Reduction as Reduction
    from porting.planning.reduction import reduce_model as reduce_model
    from porting.planning.remedies import Remedy as Remedy
    from porting.planning.remedies import list_first_remedy as list_first_remedy
    from porting.planning.split import Split as Split
    from porting.planning.split import split_step as split_step
    from porting.planning.step_walk import look_at_step as look_at_step
    from porting.planning.step_walk import walk_step as walk_step
    from porting.planning.throughput import Forecast as Forecast

__all__, __getattr__, __dir__ = read_late_names(globals())
