"""Executors that share weights take turns on the device, and hand the weights over through the host.

Each executable has its own copy of the weights on its device. Those of one ported model share them: the training step,
inference, evaluation. So do those of two ported models with modules in common, as the two halves of a GAN.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, FrozenSet, Iterator, List, MutableSet

if TYPE_CHECKING:
    from .executor_handle import ExecutorHandle

__all__ = ["DeviceTurns"]


class DeviceTurns:
    """The turns of one executor among those that share a parameter or buffer with it."""

    def __init__(self, handle: ExecutorHandle, model: Any, *, trains: bool) -> None:
        """Start alone; `model` is the one whose tensors the executable will hold."""
        self._handle = weakref.ref(handle)
        self._model = model
        self.trains = trains
        self._tensors: FrozenSet[int] = frozenset()
        self._others: List[DeviceTurns] = []
        self._fetches = False

    def meet(self) -> None:
        """Get to know the executors that share tensors with this one, which is about to be made.

        An executor that trains makes the host's tensors its own, to fetch what it has trained when somebody looks.
        Where two would, the earlier one lets go of them and fetches after each of its calls instead.
        """
        self._tensors = frozenset(id(tensor) for tensor in [*self._model.parameters(), *self._model.buffers()])
        self._others = [other for other in _COMPILED if other._model is self._model or other._tensors & self._tensors]
        self.take()
        for handle in self._other_handles(training=True) if self.trains else ():
            handle.turns._fetches = True
            handle.unwrap()

    def join(self) -> None:
        """Take part from now on: the executor is compiled."""
        for other in self._others:
            other._others.append(self)
        _COMPILED.add(self)

    @property
    def has_let_go(self) -> bool:
        """Whether another executor has made the host's tensors its own since."""
        return self._fetches

    def take(self) -> None:
        """Let the others give the device free; what they have trained is on the host then."""
        if self._others:
            for handle in self._other_handles():
                handle.detach()

    def finish(self) -> None:
        """End a call: where looking at the host's tensors would not fetch what it has trained, do it now."""
        if self._fetches:
            handle = self._handle()
            if handle is not None:
                handle.executor.copyWeightsToHostIfNeeded()

    def send_weights(self) -> None:
        """Send the host's weights to the executor that holds the device; the others get them on their turn."""
        own = self._handle()
        for handle in [*([own] if own is not None else []), *self._other_handles()]:
            if handle.is_attached:
                handle.executor.copyWeightsToDevice()

    def leave(self) -> None:
        """Take no part any more: the executable is gone."""
        for other in self._others:
            if self in other._others:
                other._others.remove(self)
        self._others, self._fetches = [], False
        _COMPILED.discard(self)

    def _other_handles(self, *, training: bool = False) -> Iterator[ExecutorHandle]:
        for other in self._others:
            handle = other._handle()
            if handle is not None and (other.trains or not training):
                yield handle


_COMPILED: MutableSet[DeviceTurns] = weakref.WeakSet()
