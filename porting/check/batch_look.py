"""A look at the batches of a preflight: values that do not fit, shapes that differ, and the micro-batch of a step."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..api.batch import BatchSignature, refuse_lost_values
from ..diagnostics import Finding, PortingError, say_number
from ..options import PortOptions
from ..structure import flatten_tensors, make_call_arguments
from .step_capture import Arguments

__all__ = ["BatchLook", "cut_micro_batch", "look_at_batches"]

_MOST_BATCHES = 64
_MOST_SECONDS = 3.0
_MOST_KEPT = 3
_MOST_SHOWN = 4


class BatchLook:
    """What was seen of a loader's batches: how often which shapes came, and the first few for further captures."""

    def __init__(self) -> None:
        """Begin before the first batch."""
        self.shapes: Dict[str, int] = Counter()
        self.kept: List[Arguments] = []
        self.findings: List[Finding] = []
        self.num_batches = 0
        self.last_shape = ""
        self._first_rows = self._last_rows = 0

    def add(self, batch: Any) -> None:
        """Take in one batch."""
        args, kwargs = make_call_arguments(batch)
        self.num_batches += 1
        signature = BatchSignature(args, kwargs)
        self.last_shape, self._last_rows = str(signature), signature.rows
        self._first_rows = self._first_rows or signature.rows
        if self.last_shape not in self.shapes and len(self.kept) < _MOST_KEPT:
            self.kept.insert(0, (args, kwargs))
        elif len(self.kept) < _MOST_KEPT:
            self.kept.append((args, kwargs))
        self.shapes[self.last_shape] += 1
        self.findings += find_lost_values((args, kwargs))

    def find_faults(self) -> Iterator[Finding]:
        """Yield what is wrong with the batches: each kind of fault once."""
        told = set()
        for finding in self.findings:
            if finding.code not in told:
                told.add(finding.code)
                yield finding
        if len(self.shapes) > 1:
            yield self._tell_shapes()

    def _tell_shapes(self) -> Finding:
        counts = sorted(self.shapes.items(), key=lambda pair: -pair[1])
        shown = [f"{say_number(count, 'batch').replace('batchs', 'batches')}: {shape}" for shape, count in counts]
        more = [f"and {len(shown) - _MOST_SHOWN} more shapes"] if len(shown) > _MOST_SHOWN else []
        if len(counts) == 2 and counts[1] == (self.last_shape, 1) and self._last_rows < self._first_rows:
            return Finding(
                "B010",
                message="the last batch has another shape than all others",
                notes=tuple(shown),
                help=(
                    "drop it: `drop_last=True`",
                    "or fill it up: `FixedBatchDataset(dataset, samples_per_call)`",
                ),
            )
        return Finding(
            "C042",
            message=f"{self.num_batches} batches have {len(counts)} shapes, each of which is an executable of its own",
            notes=(*shown[:_MOST_SHOWN], *more),
            help=(
                "pad or crop to one shape, or sort into a few: `porting.data.buckets`",
                f"or compile them all: `PortOptions(max_executables={len(counts)})`",
            ),
        )


def look_at_batches(loader: Iterable[Any]) -> BatchLook:
    """Look at the batches of `loader`, as far as it comes in some seconds."""
    look = BatchLook()
    ends = time.monotonic() + _MOST_SECONDS
    for batch in itertools.islice(loader, _MOST_BATCHES):
        look.add(batch)
        if time.monotonic() > ends:
            break
    return look


def find_lost_values(arguments: Arguments) -> List[Finding]:
    """Find values of a batch that the device's 32 bits cannot hold (B011), and tensors on other devices (B009)."""
    args, kwargs = arguments
    found: List[Finding] = []
    tensors = flatten_tensors((args, kwargs))
    try:
        if not any(tensor.is_meta for tensor in tensors):
            refuse_lost_values(args, kwargs)
    except PortingError as error:
        found.append(error.finding)
    foreign = next((tensor.device for tensor in tensors if tensor.device.type not in ("cpu", "meta")), None)
    if foreign is not None:
        found.append(
            Finding(
                "B009",
                message=f"a tensor of the batch is on `{foreign}`",
                help="leave batches on the CPU: the call moves them to the device itself",
            )
        )
    return found


def cut_micro_batch(arguments: Arguments, options: PortOptions) -> Tuple[Arguments, Optional[Finding]]:
    """Return the arguments of one run of `forward`, and B004 where a batch cannot be cut as the options ask."""
    parts = options.micro_batches_per_call
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    rows = tensors[0].shape[0] if tensors else 1
    if parts == 1:
        return arguments, None
    if rows % parts:
        return arguments, Finding(
            "B004",
            message=f"{rows} rows cannot be cut into {parts} micro-batches",
            notes=f"{options.accumulation} accumulation x {options.replicas} replicas x "
            f"{options.device_iterations} device iterations",
            help="take batches from `ported.dataloader(...)`: it makes them of `options.samples_per_call` rows",
        )

    def cut(item: Any) -> Any:
        is_cut = isinstance(item, torch.Tensor) and item.dim() and item.shape[0] == rows
        return item[: rows // parts].detach() if is_cut else item

    args, kwargs = tree_map(cut, (list(arguments[0]), arguments[1]))
    return (tuple(args), kwargs), None
