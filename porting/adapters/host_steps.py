"""Follow the steps that a loop on the host makes with an optimizer of the backend's own, which a port has too.

`PortOptimizer` uses it.
"""

from __future__ import annotations

import weakref
from typing import Any, MutableSet

from torch import nn

from porting.adapters.optimizer_state import collect_changes, fetch_torch_state, read_entries, set_entries
from porting.torch_insides.tensors import TENSOR_BASE

__all__ = ["HostSteps"]

_STEPPED: MutableSet[Any] = weakref.WeakSet()
"""The optimizers whose last step was one of the host, which their device has not followed."""

_read_gradient = TENSOR_BASE.grad.__get__


class HostSteps:
    """The state of an optimizer of the backend's own, which a loop on the host may step as well.

    It keeps the device's state beside torch's `state`, where its steps on the host look. A first step there goes on
    from what the device has trained in `num_unseen` steps, and the device from what the host has.
    """

    def __init__(self, optimizer: Any, model: nn.Module) -> None:
        """Look at the steps that `optimizer` makes on the host; `hooks` end that."""
        self._optimizer = optimizer
        self._model = model
        self.num_unseen = 0
        self.hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def follow(self) -> None:
        """Let the device go on with the state that steps on the host have left, if there were any."""
        if self._optimizer in _STEPPED:
            _STEPPED.discard(self._optimizer)
            entries = read_entries(self._optimizer)
            set_entries(self._optimizer, {**entries, **collect_changes(self._optimizer, entries, self._model)})

    def _before_step(self, *_step: object) -> None:
        if self.num_unseen and self._has_gradients():
            count, self.num_unseen = self.num_unseen, 0
            own = self._optimizer
            fetch_torch_state(own, own, own.state, self._model, num_steps=count)

    def _after_step(self, *_step: object) -> None:
        if self._has_gradients():
            _STEPPED.add(self._optimizer)

    def _has_gradients(self) -> bool:
        # read without a look at the weights: a step that is left over in the loop of a port has nothing to do
        groups = self._optimizer.param_groups
        return any(_read_gradient(parameter) is not None for group in groups for parameter in group["params"])
