"""What the device's types do to a model's own tensors: values that 32 bits cannot hold, and precision that is lost."""

from __future__ import annotations

from typing import Iterator, List, Sequence, Tuple

import torch

from ..capture import StepGraph
from ..capture.dtypes import NARROWED
from ..capture.plain_values import dtype_name
from ..diagnostics import Finding, list_names, say_number
from ..host_tensors import HostTensor

__all__ = ["find_narrowing", "find_wide_state"]

_MOST_NAMES = 5
_RANGES = {
    torch.int64: (torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max),
    torch.float64: (torch.finfo(torch.float32).min, torch.finfo(torch.float32).max),
}


def find_wide_state(hosts: Sequence[HostTensor]) -> Iterator[Finding]:
    """Yield C043 for each parameter or buffer with a value that is another one in the device's 32 bits.

    Infinite and missing values stay what they are; tensors without values are passed over.

    >>> hosts = [HostTensor("ids", "buffer", torch.tensor([2**40]), ("ids",))]
    >>> [finding.code for finding in find_wide_state(hosts)]
    ['C043']
    """
    for host in hosts:
        # a wide tensor is rare: nothing of the others is looked at
        if host.tensor.dtype not in _RANGES or not _has_values(host.tensor):
            continue
        values = host.tensor.detach()
        low, high = _RANGES[values.dtype]
        lost = (values < low) | (values > high)
        if values.dtype.is_floating_point:
            lost &= values.isfinite()
        if lost.any():
            narrow = dtype_name(NARROWED[values.dtype])
            first = values[lost].flatten()[0].item()
            yield Finding(
                "C043",
                message=f"the {host.kind} `{host.name}` has the value {first}, which is beyond {narrow}",
                notes=f"the device has no {dtype_name(values.dtype)}: it would compute with another value",
                help="scale or renumber the values, or keep them on the host, where they are used before the call",
            )


def find_narrowing(graph: StepGraph) -> Iterator[Finding]:
    """Yield C044 for what is of double precision in a step: parameters, buffers, inputs, and results of operators."""
    wide = [f"{info.kind} {info.name}" for info in graph.entering if info.host_dtype == torch.float64]
    if wide:
        yield _make_narrowing(f"{say_number(len(wide), 'tensor')} of the step: {list_names(wide, most=_MOST_NAMES)}")
    told = set()
    for node in graph.graph.nodes:
        place = node.meta.get("place")
        if node.meta.get("coerced_from") == torch.float64 and place not in told:
            told.add(place)
            yield _make_narrowing("a tensor that `forward` makes", place=place, label="float64 is asked for here")


def _make_narrowing(what: str, **where: object) -> Finding:
    facts: Tuple[str, ...] = ("the device has no float64; losses differ from those of plain PyTorch by rounding",)
    return Finding(
        "C044",
        message=f"{what} would be float64, and is float32 on the device",
        notes=facts,
        help="compare with plain PyTorch in float32, or compute on the host what needs double precision",
        **where,  # type: ignore[arg-type]
    )


def _has_values(tensor: torch.Tensor) -> bool:
    names: List[str] = [kind.__name__ for kind in type(tensor).__mro__]
    return not tensor.is_meta and "FakeTensor" not in names and tensor.numel() > 0
