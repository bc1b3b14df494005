"""Let the state of a torch optimizer and that of its counterpart on the device follow each other.

After each step the device's is newer. It is fetched when somebody looks at the optimizer's `state`, and what was
changed there goes back with the next call. `PortOptimizer` uses it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Callable, Mapping, Tuple

import torch
from torch import nn

from porting.adapters.backend_protocol import BackendOptimizer
from porting.adapters.optimizer_state import collect_changes, fetch_torch_state, read_entries, set_entries

__all__ = ["FollowedState"]

# all by which a dictionary shows or changes what is in it
_LOOKS = (
    "__contains__ __delitem__ __eq__ __getitem__ __ior__ __iter__ __len__ __ne__ __or__ __repr__ __reversed__ __ror__ "
    "__setitem__ clear get items keys pop popitem setdefault update values"
).split()


class FollowedState:
    """The states of `source`, a torch optimizer of parameters of `model`, and of its counterpart `target`.

    An optimizer that is ported again, or that gets another state by `load_state_dict`, has another dictionary as its
    `state` then: whoever finds that out goes on from there. `shown` is the dictionary as it was left, and `num_unseen`
    counts the steps of the device that it does not show; each call looks at both.
    """

    def __init__(self, source: torch.optim.Optimizer, target: BackendOptimizer, model: nn.Module) -> None:
        """Take the place of the state that `source` has, which `target` has got."""
        self.source = source
        self._target = target
        self._model = model
        self._is_ahead = False
        self.num_unseen = 0
        self._show_own()

    def _show_own(self) -> None:
        # what is replaced may be that of an earlier port, which fetches what that has trained
        self.shown = self.source.state = _ShownState(self._fetch_state, self.source.state)
        self._is_ahead, self.num_unseen = False, 0

    def follow(self) -> None:
        """Let the device go on with what was changed on the host, if anything was.

        Raises UnsupportedOptimizerError O005 for a state of the wrong shape.
        """
        if self.source.state is not self.shown:
            self._show_own()
            self.shown.is_seen = True
        if not self.shown.is_seen:
            return
        entries = read_entries(self._target)
        changes = collect_changes(self.source, entries, self._model)
        if changes:
            set_entries(self._target, {**entries, **changes})
        self.shown.is_seen = False

    def bring_together(self) -> None:
        """Let both sides have all of the state: the next executable may leave out what is frozen now, and lose it."""
        if self.source.state is self.shown:
            self.shown.look()
        self.follow()

    def set_entries(self, entries: Mapping[str, torch.Tensor]) -> None:
        """Let the device go on with a state by its own names; the host's is out of date then."""
        set_entries(self._target, entries)
        self._is_ahead = True

    def _fetch_state(self) -> None:
        """Bring the host's state up to date."""
        if self._is_ahead or self.num_unseen:
            self._is_ahead, count, self.num_unseen = False, self.num_unseen, 0
            with torch.inference_mode(False):  # the state would be tensors of that mode ever after
                fetch_torch_state(self._target, self.source, self.shown, self._model, num_steps=count)


class _ShownState(defaultdict):
    """The `state` of a torch optimizer, which calls `fetch` before anybody looks; `is_seen` tells that somebody has."""

    def __init__(self, fetch: Callable[[], None], content: Mapping[Any, Any]) -> None:
        super().__init__(dict, dict(content.items()))
        self.fetch = fetch
        self.is_seen = False

    def look(self) -> None:
        self.is_seen = True
        self.fetch()

    def copy(self) -> Any:
        return defaultdict(dict, self.items())

    def __copy__(self) -> Any:
        return self.copy()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Tuple[Any, ...]:
        # a copy of an optimizer has no device
        return defaultdict, (dict,), None, None, iter(self.items())


def _look_first(method: Callable[..., Any]) -> Callable[..., Any]:
    def look(state: _ShownState, *args: Any, **kwargs: Any) -> Any:
        state.look()
        return method(state, *args, **kwargs)

    return look


for _name in _LOOKS:
    if hasattr(defaultdict, _name):  # some are of Python 3.9 and later
        setattr(_ShownState, _name, _look_first(getattr(defaultdict, _name)))
