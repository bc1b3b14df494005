"""`HostWrites`: notice that somebody wrote to a model's weights on the host, by whatever road.

torch counts writes through the tensors themselves. A write to `.data`, to an array or to a view that was taken earlier
is not counted: it is found by comparing the weights with a copy.
"""

from __future__ import annotations

import weakref
from typing import Any, List, Optional, Sequence, Tuple

import torch

from ..adapters.batch_counts import BatchCounts
from ..host_tensors import has_alias
from ..torch_insides.modes import DisableTorchFunctionSubclass
from ..torch_insides.tensors import read_version

__all__ = ["HostWrites", "are_same_bytes"]


class HostWrites:
    """Tells a runner before each call whether the host's weights are others than its executable has.

    Between a call that trains and the next look at a weight the host's values are out of date, and nobody can write to
    them: they are copied when they are fetched, and compared by the next call. A runner that does not train compares in
    each call. Somebody who holds an alias of a weight, such as an array, can write to it at any time: `has_aliases`
    tells that the weights are to be fetched after each call, so that it shows and takes what it would without a device.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], *, trains: bool, follows_aliases: bool = True) -> None:
        """Start to watch `tensors`; those made in inference mode cannot be watched."""
        self._tensors: List[torch.Tensor] = [tensor for tensor in tensors if not tensor.is_inference()]
        self._trains = trains
        self._follows_aliases = trains and follows_aliases
        self._seen: Tuple[List[int], List[int]] = ([], [])
        self._copies: Optional[List[torch.Tensor]] = None
        self.has_aliases = False
        self.note_agreement()

    def note_agreement(self) -> None:
        """Note that host and device have the same values now, as after a fetch, or after the weights were sent."""
        with DisableTorchFunctionSubclass():
            self._seen = self._look()
            if self._copies is None:
                self._copies = [tensor.detach().clone() for tensor in self._tensors]
            else:
                for tensor, copied in zip(self._tensors, self._copies):
                    copied.copy_(tensor.detach())

    def note_call(self) -> None:
        """Note that a call has run: what it has trained is newer than what the host has."""
        with DisableTorchFunctionSubclass():
            self._seen = self._look()
        if self._trains:
            self._copies = None

    def is_written(self) -> bool:
        """Tell whether something was written since the last agreement, or since the last call if that has trained."""
        with DisableTorchFunctionSubclass():
            if self._look() != self._seen:
                return True
            if self._copies is None:
                return False
            if self._follows_aliases:
                self.has_aliases = any(map(has_alias, self._tensors))
            return not all(map(are_same_bytes, self._tensors, self._copies))

    def send(self, executor: Any) -> None:
        """Send the host's weights; those that `executor` has trained since the last fetch come to the host before.

        Tensors that got other memory since (`weight.data = tensor`) keep what is in that.
        """
        with DisableTorchFunctionSubclass(), torch.no_grad():
            places = zip(self._tensors, self._seen[1])
            given = [tensor for tensor, place in places if self._copies is None and tensor.data_ptr() != place]
            values = [tensor.detach().clone() for tensor in given]
            if given:
                executor.copyWeightsToHost()
            for tensor, value in zip(given, values):
                tensor.copy_(value)
        executor.copyWeightsToDevice()

    def note_fetches(self, executor: Any, counts: BatchCounts) -> None:
        """Let the weights that `executor` brings to the host count as seen, and bring `counts` with them.

        PopTorch fetches through the instance's attribute, so that it can be exchanged.
        """
        fetch, own, writes = type(executor).copyWeightsToHost, weakref.ref(executor), weakref.ref(self)

        def copy_weights_to_host() -> None:
            running = own()
            if running is not None:
                with counts.survive_fetch():
                    fetch(running)
                watching = writes()
                if watching is not None:
                    watching.note_agreement()

        executor.copyWeightsToHost = copy_weights_to_host

    def _look(self) -> Tuple[List[int], List[int]]:
        return [*map(read_version, self._tensors)], [*map(torch.Tensor.data_ptr, self._tensors)]


def are_same_bytes(tensor: torch.Tensor, copied: torch.Tensor) -> bool:
    """Compare bit by bit: NaN is no news, and -0.0 is another number than 0.0."""
    if tensor.dtype != copied.dtype or tensor.shape != copied.shape:
        return False
    kind = _OF_SIZE.get(tensor.element_size()) if tensor.is_floating_point() else None
    plain = tensor.detach()
    return torch.equal(plain, copied) if kind is None else torch.equal(plain.view(kind), copied.view(kind))


_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
