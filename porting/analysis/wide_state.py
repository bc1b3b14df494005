"""Find values of a model's own tensors that the device's 32 bits cannot hold; needs no capture, and so no new torch."""

from __future__ import annotations

from typing import Iterator, List, Sequence

import torch

from ..diagnostics import Finding, PortingError
from ..host_tensors import HostTensor

__all__ = ["iter_wide_state", "refuse_wide_state"]

_RANGES = {
    torch.int64: (torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max),
    torch.float64: (torch.finfo(torch.float32).min, torch.finfo(torch.float32).max),
}
_NARROW = {torch.int64: "int32", torch.float64: "float32"}


def iter_wide_state(hosts: Sequence[HostTensor]) -> Iterator[Finding]:
    """Yield C043 for each parameter or buffer with a value that changes in the device's 32 bits.

    Infinite values and NaN do not change; tensors without values are skipped.

    >>> hosts = [HostTensor("ids", "buffer", torch.tensor([2**40]), ("ids",))]
    >>> [finding.code for finding in iter_wide_state(hosts)]
    ['C043']
    """
    for host in hosts:
        # a wide tensor is rare: the others are not read
        if host.tensor.dtype not in _RANGES or not _has_values(host.tensor):
            continue
        values = host.tensor.detach()
        low, high = _RANGES[values.dtype]
        lost = (values < low) | (values > high)
        if values.dtype.is_floating_point:
            lost &= values.isfinite()
        if lost.any():
            first = values[lost].flatten()[0].item()
            yield Finding(
                "C043",
                message=f"the {host.kind} `{host.name}` has the value {first}, which is beyond {_NARROW[values.dtype]}",
                notes=f"the device has no {str(values.dtype)[6:]}: it would compute with another value",
                help="scale or renumber the values, or keep them on the host, where they are used before the call",
            )


def refuse_wide_state(hosts: Sequence[HostTensor]) -> None:
    """Raise one PortingError C043 for all tensors of a model with values that the device cannot hold."""
    found: List[Finding] = list(iter_wide_state(hosts))
    if found:
        first, others = found[0], [str(finding.message) for finding in found[1:]]
        raise PortingError.of("C043", message=first.message, notes=(*first.notes, *others), help=first.help)


def _has_values(tensor: torch.Tensor) -> bool:
    names: List[str] = [kind.__name__ for kind in type(tensor).__mro__]
    return not tensor.is_meta and "FakeTensor" not in names and tensor.numel() > 0
