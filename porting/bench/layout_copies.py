"""This module counts work that only copies a tensor into another memory layout: torch's copies and oneDNN's reorders.

Loops of compiled programs are not counted: they compute with what they copy.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch

from porting.bench.turns import time_calls

__all__ = ["Copies", "LayoutCopies", "SideCopies", "count_layout_copies", "read_reorders"]

_NUM_TIMED_CALLS = 3


@dataclass(frozen=True)
class Copies:
    """How many copies a step makes, the bytes that they read and write, and the seconds that they take."""

    number: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class SideCopies:
    """The copies of a step: by torch's operators, and by oneDNN of weights and of all other tensors.

    `number` counts all of them, and `share` is the part of a step's time that they take.
    """

    operators: Copies = field(default_factory=Copies)
    weights: Copies = field(default_factory=Copies)
    others: Copies = field(default_factory=Copies)
    number: float = 0.0
    share: float = 0.0


@dataclass(frozen=True)
class LayoutCopies:
    """Copies of both sides, each counted in a process of its own; None with a `reason` where they were not."""

    eager: Optional[SideCopies] = None
    ported: Optional[SideCopies] = None
    reason: str = ""


def count_layout_copies(
    call: Callable[[], Any], *, steps: int = 1, weight_shapes: Collection[Tuple[int, ...]] = ()
) -> SideCopies:
    """Count the copies of `call`, which runs `steps` steps and has been called before; it runs some times.

    A reorder of a tensor with one of `weight_shapes` counts as one of a weight.

    >>> images = torch.ones(2, 3, 4, 4)
    >>> copies = count_layout_copies(lambda: images.contiguous(memory_format=torch.channels_last))
    >>> copies.number, copies.operators.bytes
    (1.0, 768.0)
    """
    call_seconds = min(time_calls(call, _NUM_TIMED_CALLS).call_seconds)
    reorders = read_reorders(_note_primitives(call))
    weights = [copies for shape, copies in reorders if shape in weight_shapes]
    others = [copies for shape, copies in reorders if shape not in weight_shapes]
    operators = list(_iter_operator_copies(call))
    seconds = sum(copies.seconds for copies in (*operators, *weights, *others))
    return SideCopies(
        operators=_add_up(operators, steps),
        weights=_add_up(weights, steps),
        others=_add_up(others, steps),
        number=(len(operators) + len(weights) + len(others)) / steps,
        share=seconds / call_seconds,
    )


def _add_up(copies: Sequence[Copies], steps: int) -> Copies:
    return Copies(
        len(copies) / steps, sum(copy.bytes for copy in copies) / steps, sum(copy.seconds for copy in copies) / steps
    )


# -- torch's operators -------------------------------------------------------------------------------------------------


def _iter_operator_copies(call: Callable[[], Any]) -> Iterator[Copies]:
    """Yield the copies between two tensors that differ in nothing but their layout."""
    from torch.autograd.profiler import profile

    with profile(record_shapes=True) as profiler:
        call()
    recorded: Any = profiler.kineto_results
    waiting: List[Any] = list(recorded.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        # `clone`, `contiguous` and `to` all end in it
        if event.name == "aten::copy_":
            target, source = event.extra_fields.inputs[:2]
            if _differ_in_layout(target, source):
                num_bytes = 2.0 * math.prod(target.sizes) * target.dtype.itemsize
                yield Copies(1.0, num_bytes, 1e-9 * event.duration_time_ns)


def _differ_in_layout(target: Any, source: Any) -> bool:
    """Tell whether two tensors fill the same memory in another order: no parts, and nothing that is repeated."""
    if not all(hasattr(tensor, "strides") for tensor in (target, source)):
        return False
    if target.dtype != source.dtype or list(target.sizes) != list(source.sizes):
        return False
    ways = [_list_strides(tensor.sizes, tensor.strides) for tensor in (target, source)]
    return ways[0] != ways[1] and all(map(_fills_memory, ways))


def _list_strides(sizes: Sequence[int], strides: Sequence[int]) -> List[Tuple[int, int]]:
    return [(stride, size) for size, stride in zip(sizes, strides) if size > 1]


def _fills_memory(strides: Iterable[Tuple[int, int]]) -> bool:
    expected = 1
    for stride, size in sorted(strides):
        if stride != expected:
            return False
        expected *= size
    return True


# -- oneDNN's reorders -------------------------------------------------------------------------------------------------

_ITEM_BYTES = {"f64": 8, "f32": 4, "s32": 4, "f16": 2, "bf16": 2, "s8": 1, "u8": 1}
_REORDER = re.compile(
    r"exec,cpu,reorder,.*src:(?P<source_type>\w+):[^ ,]*?blocked:(?P<source>\w+):\S* "
    r"dst:(?P<target_type>\w+):[^ ,]*?blocked:(?P<target>\w+):.*,(?P<shape>\d+(?:x\d+)*),(?P<milliseconds>[\d.e+-]+)$"
)


def read_reorders(lines: Iterable[str]) -> List[Tuple[Tuple[int, ...], Copies]]:
    """Read of oneDNN's lines about what it has run those of reorders that keep the type: the shape of each, and itself.

    >>> line = "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,attr-scratchpad:user,,2x3x4x4,0.5"
    >>> read_reorders([f"onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,{line}"])
    [((2, 3, 4, 4), Copies(number=1.0, bytes=768.0, seconds=0.0005))]
    """
    found = []
    for match in filter(None, (_REORDER.search(line.strip()) for line in lines)):
        item_bytes = _ITEM_BYTES.get(match["source_type"])
        if item_bytes and match["source_type"] == match["target_type"] and match["source"] != match["target"]:
            shape = tuple(map(int, match["shape"].split("x")))
            copies = Copies(1.0, 2.0 * math.prod(shape) * item_bytes, 1e-3 * float(match["milliseconds"]))
            found.append((shape, copies))
    return found


def _note_primitives(call: Callable[[], Any]) -> List[str]:
    """Call under oneDNN's own protocol, and return its lines, which it writes to the process's output."""
    mkldnn: Any = torch.backends.mkldnn
    if not mkldnn.is_available():
        return []
    library = ctypes.CDLL(None)
    sys.stdout.flush()
    library.fflush(None)
    output = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with mkldnn.verbose(mkldnn.VERBOSE_ON):
                call()
        finally:
            library.fflush(None)
            os.dup2(output, 1)
            os.close(output)
        file.seek(0)
        return file.read().decode("utf-8", errors="replace").splitlines()
