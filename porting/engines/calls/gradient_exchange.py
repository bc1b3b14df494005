"""Gradients summed over the processes of a distributed program, in few messages."""

from __future__ import annotations

from typing import Callable, List, Sequence

import torch

__all__ = ["GradientExchange", "sum_over_processes"]

# Adds the gradients of the other processes to the given ones, in place; every process passes the same shapes in the
# same order.
GradientExchange = Callable[[Sequence[torch.Tensor]], None]

# Large enough for the start of an exchange to cost little beside its bytes, and small enough for a copy to take little
# memory.
_MESSAGE_BYTES = 32 * 2**20


def sum_over_processes(gradients: Sequence[torch.Tensor]) -> None:
    """Add up `gradients`, all of one type, over torch's default process group, in place.

    They travel in messages of about 32 MiB, so that many small ones cost one exchange.
    """
    for bucket in _fill_buckets(gradients):
        # A copy there and back is cheap beside one exchange for each of many small gradients.
        message = torch.cat([gradient.reshape(-1) for gradient in bucket])
        torch.distributed.all_reduce(message)
        parts = message.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts):
            gradient.copy_(part.view(gradient.shape))


def _fill_buckets(gradients: Sequence[torch.Tensor]) -> List[List[torch.Tensor]]:
    buckets: List[List[torch.Tensor]] = []
    num_bytes = _MESSAGE_BYTES
    for gradient in gradients:
        if num_bytes >= _MESSAGE_BYTES:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(gradient)
        num_bytes += gradient.numel() * gradient.element_size()
    return buckets
