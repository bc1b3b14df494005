"""Bring what a torch scheduler sets on the host to the optimizer on the device.

`ported.scheduler` returns a `SchedulerBridge`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, List

import torch

from porting.adapters.optimizers import sync_hyper_parameters
from porting.diagnostics import UnsupportedOptimizerError
from porting.support.uncompiled_code import keep_class_uncompiled
from porting.torch_insides.optimizers import show_step

__all__ = ["SchedulerBridge"]


@keep_class_uncompiled
class SchedulerBridge:
    """A torch scheduler whose every step is seen by the device.

    `source` is the torch optimizer that the scheduler drives, `target` its counterpart on the device (the same object
    where the user made the device's optimizer himself), `upload` the function that makes the device look at `target`
    again: the executor's `setOptimizer`. `is_compiled` tells whether constants are compiled in already, `has_trained`
    whether the device has made an optimizer step: torch warns of schedulers that step before the optimizer does.

    What the scheduler set when it was made (a warm-up's first factor, a `LambdaLR` over an absolute rate) is uploaded
    at once. Raises UnsupportedOptimizerError O006 for a scheduler of another optimizer, and what
    `sync_hyper_parameters` raises.

    >>> from types import SimpleNamespace
    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=8.0)
    >>> scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> device = SimpleNamespace(param_groups=[dict(group) for group in optimizer.param_groups])
    >>> bridge = SchedulerBridge(scheduler, source=optimizer, target=device, upload=lambda target: None)
    >>> bridge.step()
    >>> device.param_groups[0]["lr"]
    4.0
    """

    def __init__(
        self,
        scheduler: torch.optim.lr_scheduler.LRScheduler,
        *,
        source: torch.optim.Optimizer,
        target: Any,
        upload: Callable[[Any], Any],
        is_compiled: Callable[[], bool] = lambda: False,
        has_trained: Callable[[], bool] = lambda: True,
    ) -> None:
        driven = getattr(scheduler, "optimizer", None)
        if driven is not source and driven is not target:
            raise UnsupportedOptimizerError.at_caller(
                "O006",
                message=f"`{type(scheduler).__name__}` drives another optimizer than the ported model's",
                help="make the scheduler from the optimizer that was passed to `to_ipu`",
            )
        self.scheduler = scheduler
        self.source = driven
        self.target = target
        self._upload = upload
        self._is_compiled = is_compiled
        self._has_trained = has_trained
        self.push()

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step the scheduler, with the metric that a `ReduceLROnPlateau` wants, and show the result to the device."""
        seen: ContextManager[None] = show_step(self.source) if self._has_trained() else nullcontext()
        with seen:
            self.scheduler.step(*args, **kwargs)
        self.push()

    def push(self) -> None:
        """Show the device the hyper-parameters that the host's optimizer has now."""
        has_changed = sync_hyper_parameters(self.source, self.target, is_compiled=self._is_compiled())
        if has_changed or self.source is self.target:
            self._upload(self.target)

    def get_last_lr(self) -> List[float]:
        """Return the learning rate of each parameter group."""
        return [float(group["lr"]) for group in self.source.param_groups]

    def state_dict(self) -> Dict[str, Any]:
        """Return the scheduler's own state."""
        return self.scheduler.state_dict()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the scheduler's own state; as in torch, the learning rates are part of the optimizer's."""
        self.scheduler.load_state_dict(state_dict)
        self.push()
