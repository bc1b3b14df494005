"""`HostWrites`: what the user writes to a model's weights on the host reaches the device with the next call."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any, Iterable, List, MutableMapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.jit import ScriptModule

from ..adapters.batch_counts import BatchCounts
from ..host_tensors import are_same_bytes, has_alias, read_registry
from ..torch_insides.modes import DisableTorchFunctionSubclass
from ..torch_insides.tensors import TENSOR_BASE, read_version

__all__ = ["HeldBuffer", "HostWrites", "list_held_buffers"]

_find_memory = torch.Tensor.data_ptr
# read without the attribute hooks of a backend, which would fetch the weights
_KIND = (TENSOR_BASE.shape.__get__, TENSOR_BASE.dtype.__get__)


class HeldBuffer(NamedTuple):
    """A buffer, and the dictionary of the module that holds it by a name."""

    registry: MutableMapping[str, Any]
    name: str
    tensor: torch.Tensor

    def is_followed_by(self, now: Any) -> bool:
        """Tell whether a device goes on with the tensor `now` in the place of this one: they differ in values alone."""
        if type(now) not in (torch.Tensor, type(self.tensor)):
            return False
        with DisableTorchFunctionSubclass():
            if torch.Tensor.is_inference(now) or not torch.Tensor.is_floating_point(now):
                return False  # integers are constants on the device
            return all(read(now) == read(self.tensor) for read in _KIND)


def list_held_buffers(modules: Iterable[nn.Module]) -> List[HeldBuffer]:
    """List the buffers of `modules` with one name; one that is exchanged is tied to its other names no longer."""
    registries = [read_registry(module, "_buffers") for module in modules if not isinstance(module, ScriptModule)]
    held = [HeldBuffer(registry, name, each) for registry in registries for name, each in registry.items()]
    uses = Counter(id(buffer.tensor) for buffer in held)
    return [buffer for buffer in held if buffer.tensor is not None and uses[id(buffer.tensor)] == 1]


class HostWrites:
    """Tells a runner before each call whether the host's weights are others than its executable has.

    Between a call that trains and the next look at a weight the host's values are out of date, and nobody can write to
    them: they are copied when they are fetched, and compared by the next call. A runner that does not train compares in
    each call. Somebody who holds an alias of a weight, such as an array, can write to it at any time: `has_aliases`
    tells that the weights are to be fetched after each call, so that it shows and takes what it would without a device.
    A tensor that was put in the place of a buffer, as `double()` and `float()` do, is one more way to write.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        trains: bool,
        buffers: Sequence[HeldBuffer] = (),
        follows_aliases: bool = True,
    ) -> None:
        """Start to watch `tensors`, and which `buffers` are exchanged; those made in inference mode cannot be."""
        self._tensors: List[torch.Tensor] = [tensor for tensor in tensors if not tensor.is_inference()]
        watched = {id(tensor) for tensor in self._tensors}
        self._buffers = [buffer for buffer in buffers if id(buffer.tensor) in watched]
        self._trains = trains
        self._follows_aliases = trains and follows_aliases
        self._seen: Tuple[int, List[int]] = (0, [])
        self._copies: Optional[List[torch.Tensor]] = None
        self.has_aliases = False
        self.note_agreement()

    def note_agreement(self) -> None:
        """Note that host and device have the same values now, as after a fetch, or after the weights were sent."""
        with DisableTorchFunctionSubclass():
            self._seen = self._look_at_all()
            if self._copies is None:
                self._copies = [tensor.detach().clone() for tensor in self._tensors]
            else:
                for tensor, copied in zip(self._tensors, self._copies):
                    copied.copy_(tensor.detach())

    def note_call(self) -> None:
        """Note that a call has run: what it has trained is newer than what the host has."""
        with DisableTorchFunctionSubclass():
            self._seen = self._look_at_all()
        if self._trains:
            self._copies = None

    def is_written(self) -> bool:
        """Tell whether something was written since the last agreement, or since the last call if that has trained."""
        self.follow_exchanges()
        with DisableTorchFunctionSubclass():
            if self._look_at_all() != self._seen:
                return True
            if self._copies is None:
                return False
            if self._follows_aliases:
                self.has_aliases = any(map(has_alias, self._tensors))
            return not all(map(are_same_bytes, self._tensors, self._copies))

    def follow_exchanges(self) -> List[torch.Tensor]:
        """Watch the tensors that were put in the place of buffers, and return them; they are shown as those were."""
        found: List[torch.Tensor] = []
        for number, buffer in enumerate(self._buffers):
            now: Any = buffer.registry.get(buffer.name)
            if now is not buffer.tensor and buffer.is_followed_by(now):
                place = next(place for place, tensor in enumerate(self._tensors) if tensor is buffer.tensor)
                # the backend's class fetches what was trained for a look
                now.__class__ = type(buffer.tensor)
                self._tensors[place], self._buffers[number] = now, buffer._replace(tensor=now)
                found.append(now)
        return found

    def send(self, executor: Any) -> None:
        """Send the host's weights; those that `executor` has trained since the last fetch come to the host before.

        Tensors that got other memory since (`weight.data = tensor`) keep what is in that.
        """
        with DisableTorchFunctionSubclass(), torch.no_grad():
            places = zip(self._tensors, self._seen[1])
            given = [tensor for tensor, place in places if self._copies is None and _find_memory(tensor) != place]
            values = [*map(torch.Tensor.clone, given)]
            if given:
                executor.copyWeightsToHost()
            for tensor, value in zip(given, values):
                tensor.copy_(value)
        executor.copyWeightsToDevice()
        self.note_agreement()

    def note_fetches(self, executor: Any, counts: BatchCounts) -> None:
        """Let the weights that `executor` brings to the host count as seen, and bring `counts` with them.

        PopTorch fetches through the instance's attribute, so that it can be exchanged.
        """
        fetch, own, writes = type(executor).copyWeightsToHost, weakref.ref(executor), weakref.ref(self)

        def copy_weights_to_host() -> None:
            running = own()
            if running is None:
                return
            watching = writes()
            with DisableTorchFunctionSubclass(), torch.no_grad():
                given = [] if watching is None else watching.follow_exchanges()
                values = [*map(torch.Tensor.clone, given)]  # without a look at the tensors, which would fetch
            with counts.survive_fetch():
                fetch(running)
            if watching is not None:
                watching.note_agreement()
            with DisableTorchFunctionSubclass(), torch.no_grad():
                for tensor, value in zip(given, values):
                    tensor.copy_(value)  # what the next call sends

        executor.copyWeightsToHost = copy_weights_to_host

    def _look_at_all(self) -> Tuple[int, List[int]]:
        return sum(map(read_version, self._tensors)), [*map(_find_memory, self._tensors)]
