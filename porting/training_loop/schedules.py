"""Step learning-rate schedulers by epoch or by optimizer step, configured as Lightning's are."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..adapters import SchedulerBridge
from ..adapters.instances import average_over_instances
from ..api import PortedModel
from ..diagnostics import OptionError, join_names
from ..options import is_count

__all__ = ["Configuration", "Schedules"]

Configuration = Union[SchedulerBridge, LRScheduler, Mapping[str, object]]
"""A scheduler, or Lightning's dictionary of one: `{"scheduler": scheduler, "interval": "step"}`."""


@dataclass(frozen=True)
class _Schedule:
    scheduler: SchedulerBridge
    interval: str = "epoch"
    frequency: int = 1
    monitor: Optional[str] = None

    @property
    def waits_for_metric(self) -> bool:
        """Whether each step takes a metric."""
        return isinstance(self.scheduler.scheduler, ReduceLROnPlateau)


class Schedules:
    """The schedulers that a `fit` steps; those of torch are connected to the device.

    Schedulers count optimizer steps: a call that makes several steps them as often.
    """

    def __init__(
        self, ported: PortedModel, configurations: Sequence[Configuration], *, monitor: str, names: Sequence[str]
    ) -> None:
        """Check and connect them; OptionError P002 for settings that they do not have, O006 for a foreign scheduler.

        `monitor` is the metric that a plateau is looked for in unless another of `names` is said.
        """
        self._ported = ported
        self._monitor = monitor
        self._schedules = [_read_configuration(ported, each, names) for each in configurations]
        self._num_steps = ported.port_optimizer.num_steps

    def begin(self) -> None:
        """Begin at the optimizer step that the training is at."""
        self._num_steps = self._ported.port_optimizer.num_steps

    def step_after_call(self) -> None:
        """Step what counts optimizer steps."""
        before, self._num_steps = self._num_steps, self._ported.port_optimizer.num_steps
        for schedule in self._schedules:
            if schedule.interval == "step":
                for _step in range(self._num_steps // schedule.frequency - before // schedule.frequency):
                    schedule.scheduler.step()

    def step_after_epoch(self, epoch: int, metrics: Dict[str, float]) -> None:
        """Step what counts epochs."""
        for schedule in self._schedules:
            if schedule.interval == "epoch" and epoch % schedule.frequency == 0:
                monitor = schedule.monitor or self._monitor
                metric = [average_over_instances(metrics[monitor])] if schedule.waits_for_metric else []
                schedule.scheduler.step(*metric)


def _read_configuration(ported: PortedModel, configuration: Configuration, names: Sequence[str]) -> _Schedule:
    given: Dict[str, Any] = dict(configuration) if isinstance(configuration, Mapping) else {"scheduler": configuration}
    faults = list(_list_faults(given, names))
    if faults:
        raise OptionError.at_caller(
            "P002",
            message=f"a scheduler {faults[0]}",
            help='configure it as `{"scheduler": scheduler, "interval": "epoch" or "step", "frequency": 1}`',
        )
    scheduler = given.pop("scheduler")
    bridge = scheduler if isinstance(scheduler, SchedulerBridge) else ported.scheduler(scheduler)
    return _Schedule(bridge, **given)


def _list_faults(given: Mapping[str, object], names: Sequence[str]) -> List[str]:
    known = [each.name for each in fields(_Schedule)]
    unknown = [name for name in given if name not in known]
    faults = []
    if unknown:
        close = difflib.get_close_matches(str(unknown[0]), known, n=1)
        faults.append(f"has the setting `{unknown[0]}`" + (f"; did you mean `{close[0]}`?" if close else ""))
    if "scheduler" not in given:
        faults.append("is missing in its configuration")
    if given.get("interval", "epoch") not in ("epoch", "step"):
        faults.append(f'has the interval {given["interval"]!r}, not "epoch" or "step"')
    if not is_count(given.get("frequency", 1)):
        faults.append(f"has the frequency {given['frequency']!r}, not a positive number")
    if given.get("monitor") not in (None, *names):
        faults.append(f"monitors {given['monitor']!r}; there are {join_names(names)}")
    scheduler = given.get("scheduler")
    is_plateau = isinstance(getattr(scheduler, "scheduler", scheduler), ReduceLROnPlateau)
    if is_plateau and given.get("interval") == "step":
        faults.append("that looks for a plateau is stepped by step, where no metric of an epoch is known")
    return faults
