"""Share the device's memory with the host's weights while the device trains; reading a weight ends the sharing.

From a training call to the next read of a weight the host's values are out of date, and the first read fetches the
trained ones. Values that cannot be read need no memory. So a training stores its weights once, as plain torch does,
and not once for the host and once for the device.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ...engines.calls.freed_memory import return_freed_memory
from ...host_tensors import HostTensor, has_alias
from ...torch_insides.modes import DisableTorchFunctionSubclass
from ...torch_insides.tensors import count_storage_uses

__all__ = ["HostMemory"]

FindDeviceTensor = Callable[[HostTensor], Optional[torch.Tensor]]
"""Finds the tensor of a device that belongs to one of the host, if their memory may be the same."""


class _Shared(NamedTuple):
    """A tensor of the host, the strides of its own memory, and the device's tensor."""

    host: HostTensor
    strides: Tuple[int, ...]
    of_device: torch.Tensor


class HostMemory:
    """Remembers which tensors of the host share the memory of a device's."""

    def __init__(self) -> None:
        """Start with tensors that have their own memory."""
        self._shared: List[_Shared] = []
        self._has_shared = False
        self.is_shared = False

    def share(self, hosts: Sequence[HostTensor], find_device_tensor: FindDeviceTensor) -> None:
        """Let `hosts` share the memory of the device's tensors; their own values are lost.

        Tensors with an alias, such as a value of an earlier `state_dict`, keep their memory, because the alias must not
        change before the next fetch. So do those that the device has in another type.
        """
        with DisableTorchFunctionSubclass():
            for host in hosts:
                of_device = find_device_tensor(host)
                if of_device is None or of_device.dtype != host.tensor.dtype or not _is_alone_with_memory(host.tensor):
                    continue
                self._shared.append(_Shared(host, host.tensor.stride(), of_device))
                host.tensor.data = of_device.detach()
        if not self._has_shared:
            # The C library keeps freed memory, and such a hole is too small for the next tensor of its size.
            return_freed_memory()
        self.is_shared = self._has_shared = True

    def follow(self, find_device_tensor: FindDeviceTensor) -> None:
        """Share the memory of another device's tensors, which have the same values."""
        with DisableTorchFunctionSubclass():
            for index, shared in enumerate(self._shared):
                of_device = find_device_tensor(shared.host)
                assert of_device is not None
                shared.host.tensor.data = of_device.detach()
                self._shared[index] = shared._replace(of_device=of_device)

    def end_sharing(self, *, keeps_memory: bool = False) -> None:
        """Give the host's tensors memory of their own, whose values have yet to be fetched.

        With `keeps_memory`, for a device that will not be used any more, they keep its memory where they were laid out
        like that; elsewhere the device gets theirs, one after the other, so that not all of them are there twice.
        """
        ended, self._shared, self.is_shared = self._shared, [], False
        with DisableTorchFunctionSubclass():
            for host, strides, of_device in ended:
                tensor = host.tensor
                if keeps_memory and tensor.stride() == strides:
                    continue
                own = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
                if keeps_memory:
                    own.copy_(of_device.detach())
                    # compiled calls refer to it too, and will not run again
                    of_device.untyped_storage().resize_(0)
                    of_device.data = own
                tensor.data = own


def _is_alone_with_memory(tensor: torch.Tensor) -> bool:
    """Tell whether nothing else refers to the memory of `tensor`, all of which is its own."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_inference():
        return False
    if count_storage_uses is None:
        return False
    # before there is another owner of the storage's Python object, here
    if has_alias(tensor):
        return False
    storage = tensor.untyped_storage()
    # memory that is not torch's own, such as that of an array, cannot be resized
    if not storage.resizable() or storage.is_shared():
        return False
    return storage.nbytes() == tensor.numel() * tensor.element_size()
