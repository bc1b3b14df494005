"""The samples that a port is shown: those of plain PyTorch, in its order, each once an epoch."""

from __future__ import annotations

import math
from typing import Any, Iterator, List, Sequence

from torch.utils.data import DataLoader

from porting.check.sample_audit import audit_samples
from porting.structure import flatten_tensors
from porting.verify.calls import Calls, MicroBatch, are_same_tensors
from porting.verify.certificate import Measured
from porting.verify.ported_run import PortedTraining

__all__ = ["compare_samples"]


def compare_samples(source: Any, ported: PortedTraining, calls: Calls, theirs: Calls) -> Iterator[Measured]:
    """Compare the batches of both sides, and count what an epoch of a loader drops and repeats on each."""
    if theirs is not calls:
        step = ported.model.options.device_iterations
        for number, (one, other) in enumerate(zip(calls, theirs)):
            yield _compare_call(one, other, number * step + 1)
    if type(source) is DataLoader and type(ported.batches) in (DataLoader, type(None)):
        yield from _compare_epochs(source, source if ported.batches is None else ported.batches, ported.model.options)


def _compare_call(one: MicroBatch, other: MicroBatch, step: int) -> Measured:
    pairs = flatten_tensors(one), flatten_tensors(other)
    shapes = [[list(tensor.shape) for tensor in tensors] for tensors in pairs]
    if shapes[0] != shapes[1]:
        return Measured("samples", "batch", step, math.inf, 0.0, 0.0, f"{shapes[1]} in the port, not {shapes[0]}")
    wrong = [number for number, tensors in enumerate(zip(*pairs)) if not are_same_tensors(*tensors)]
    note = f"tensor {wrong[0]} of the batch has other values" if wrong else ""
    return Measured("samples", "batch", step, math.inf if wrong else 0.0, 0.0, 0.0, note)


def _compare_epochs(plain: DataLoader, ported: DataLoader, options: Any) -> Iterator[Measured]:
    size = plain.batch_size or 1
    per_call = (
        options.samples_per_call
        // options.micro_batch
        * (options.micro_batch if options.micro_batch > 1 else ported.batch_size or 1)
    )
    ours = audit_samples(plain, samples_per_call=size if plain.drop_last else 1)
    theirs = audit_samples(ported, samples_per_call=per_call)
    if ours is None or theirs is None:
        return
    for name, one, other, examples in (
        ("dropped", ours.num_dropped, theirs.num_dropped, theirs.dropped),
        ("repeated", ours.num_repeated, theirs.num_repeated, theirs.repeated),
    ):
        more = max(0, other - one)
        note = (
            f"an epoch of the port has {other} samples {name}, one of plain PyTorch {one}{_list_examples(examples)}"
            if more
            else ""
        )
        yield Measured("samples", name, 1, float(more), float(ours.num_samples), 0.0, note if more else "")


def _list_examples(examples: Sequence[int]) -> str:
    named: List[str] = [str(position) for position in examples]
    return f": {', '.join(named)}, ..." if named else ""
