"""Hold one epoch of the user's loader against what a static graph takes.

A preflight of a loader gives its figures and findings; `audit_data` gives them alone.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from operator import length_hint
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple

import torch
from tqdm.auto import tqdm

from porting.adapters.sample_audit import SampleAudit, audit_samples
from porting.check.shape_audit import ShapeAudit, ShapeCounter
from porting.diagnostics import BatchError, Finding, Severity, align_columns, find_raising_frame, join_names, say_number
from porting.options import PortOptions
from porting.structure import flatten_tensors

__all__ = ["DataAudit", "audit_data"]

# from here on padding to the longest is worth a finding
_COSTLY_PADDING = 0.2
_MOST_SHOWN = 4


@dataclass(frozen=True)
class DataAudit:
    """What one epoch of a loader is to a static graph; as a string it is a table.

    `num_rows` counts the samples that came. `samples` is None where their positions are not known in advance, and then
    `num_equal_rows` counts rows that came more than once, as those of an iterable dataset do that each of several
    workers reads as a whole. `num_short_rows` are the rows of batches that are shorter than the first.
    """

    num_batches: int
    num_rows: int
    num_short_rows: int
    shapes: ShapeAudit
    samples: Optional[SampleAudit] = None
    num_equal_rows: int = 0
    is_whole: bool = True
    findings: Tuple[Finding, ...] = ()

    def __str__(self) -> str:
        rows = [
            ("batches", f"{self.num_batches}{'' if self.is_whole else ' (the first of the epoch)'}"),
            ("samples that came", str(self.num_rows)),
            ("executables needed", str(self.shapes.num_executables)),
        ]
        if self.samples is not None:
            rows += [
                ("samples of the dataset", str(self.samples.num_samples)),
                ("dropped by a port's calls", str(self.samples.num_dropped)),
                ("seen more than once", str(self.samples.num_repeated)),
                ("padding", str(self.samples.num_padding)),
            ]
        lines = list(align_columns(rows, right={1}))
        if self.shapes.choices:
            lines += ["", str(self.shapes)]
        return "\n".join(lines)


def audit_data(
    loader: Iterable[Any],
    *,
    options: Optional[PortOptions] = None,
    instances: int = 1,
    max_batches: Optional[int] = None,
    max_seconds: Optional[float] = None,
    max_executables: int = 8,
    compile_seconds: Optional[float] = None,
    step_seconds: Optional[float] = None,
    watch: Optional[Callable[[Any], None]] = None,
) -> DataAudit:
    """Run one epoch of `loader`, torch's or any iterable of batches, and hold it against what a static graph takes.

    `options` say how many samples a call takes and `instances` how many processes share the dataset. `max_batches`
    and `max_seconds` end the epoch early; samples are counted for all of it anyway. `watch` is called with each batch.
    `max_executables`, `compile_seconds` and `step_seconds` (of a batch padded to the longest)
    choose buckets for lengths that vary. The findings are B006 (samples dropped), B010 (a short last batch), B030
    (shapes that vary), B031 (samples seen more than once) and B032 (padding to the longest is costly).

    Raises BatchError B033, with the number of the batch and the user's line, when the loader fails.

    >>> audit = audit_data([torch.ones(4, 7), torch.ones(4, 9), torch.ones(4, 9)])
    >>> audit.shapes.num_executables, [finding.code for finding in audit.findings]
    (2, ['B030'])
    """
    options = PortOptions() if options is None else options
    # a port's loader makes micro-batches of the loader's own size
    micro_batch = getattr(loader, "batch_size", None) or options.micro_batch
    samples_per_call = micro_batch * options.micro_batches_per_call
    samples = audit_samples(loader, samples_per_call=samples_per_call, instances=instances)
    counter, row_counts = ShapeCounter(), []
    seen: Counter = Counter()
    ends = math.inf if max_seconds is None else time.monotonic() + max_seconds
    is_whole = True
    for batch in _read_epoch(loader, max_batches):
        row_counts.append(counter.add(batch))
        if watch is not None:
            watch(batch)
        if samples is None:
            seen.update(_hash_rows(batch))
        is_whole = len(row_counts) != max_batches and time.monotonic() < ends
        if not is_whole:
            break
    shapes = counter.summarise(
        max_executables=max_executables, compile_seconds=compile_seconds, step_seconds=step_seconds
    )
    longest = max(row_counts, default=0)
    audit = DataAudit(
        num_batches=len(row_counts),
        num_rows=sum(row_counts),
        num_short_rows=sum(rows for rows in row_counts if rows < longest),
        shapes=shapes,
        samples=samples,
        num_equal_rows=sum(seen.values()) - len(seen),
        is_whole=is_whole,
    )
    return replace(audit, findings=tuple(_iter_findings(audit, loader, samples_per_call)))


def _read_epoch(loader: Iterable[Any], max_batches: Optional[int]) -> Iterator[Any]:
    """Yield the batches of an epoch, with a progress bar where it takes more than two seconds."""
    num_known = length_hint(loader) or None
    total = num_known if max_batches is None else min(max_batches, num_known or max_batches)
    number = 0
    with tqdm(desc="reading the data", total=total, unit=" batches", delay=2, leave=False) as bar:
        try:
            for batch in loader:
                number += 1
                yield batch
                bar.update()
        except Exception as error:
            raised = find_raising_frame(error)
            raise BatchError.of(
                "B033",
                message=f"the loader failed at batch {number}: {type(error).__name__}: {error}",
                place=None if raised is None else raised[1],
                help="run one epoch of the loader by itself: `for batch in loader: pass`",
            ) from error


def _hash_rows(batch: object) -> Iterator[bytes]:
    """Hash the bytes of each row of a batch."""
    tensors = [tensor for tensor in flatten_tensors(batch) if tensor.dim()]
    num_rows = tensors[0].shape[0] if tensors else 0
    parts = [
        (tensor.to_dense() if tensor.layout != torch.strided else tensor).detach().cpu().contiguous()
        for tensor in tensors
        if tensor.shape[0] == num_rows
    ]
    for row in range(num_rows):
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(part[row].reshape(-1).view(torch.uint8).numpy().tobytes())
        yield digest.digest()


def _iter_findings(audit: DataAudit, loader: object, samples_per_call: int) -> Iterator[Finding]:
    samples, num_workers = audit.samples, getattr(loader, "num_workers", 0)
    if samples is not None and samples.num_dropped > _count_agreed(loader, samples):
        yield _note_dropped(samples, samples_per_call)
    elif samples is None and audit.num_short_rows:
        yield Finding(
            "B010",
            f"batches of the epoch are short: {say_number(audit.num_short_rows, 'row')} would be dropped",
            severity=Severity.WARNING,
            help="load from a map-style dataset and pad it: `FixedBatchDataset(dataset, batch_size=...)`",
        )
    if samples is not None and samples.num_repeated:
        yield _note_repeated(samples, loader)
    elif audit.num_equal_rows and num_workers > 1:
        yield Finding(
            "B031",
            f"{audit.num_equal_rows} of {audit.num_rows} rows came more than once",
            notes=f"each of the {num_workers} workers reads an iterable dataset as a whole",
            help="let each worker read its share: `torch.utils.data.get_worker_info()`",
        )
    if audit.shapes.lengths:
        yield from _note_shapes(audit)
    elif audit.shapes.num_executables > 1:
        usual = sorted(audit.shapes.counts.items(), key=lambda pair: -pair[1])
        yield Finding(
            "B030",
            f"the batches of an epoch are of {audit.shapes.num_executables} kinds, each with an executable of its own",
            notes=[f"{say_number(count, 'time')}: {signature}" for signature, count in usual[:_MOST_SHOWN]],
            help=(
                "let every batch have the same rows and dimensions, and the same values that are no tensors",
                "or compile them all: `PortOptions(max_executables=N)`",
            ),
        )


def _count_agreed(loader: object, samples: SampleAudit) -> int:
    """Count the samples that the user's own loader is told to drop: `drop_last=True`."""
    size = getattr(loader, "batch_size", None)
    return samples.num_samples % size if size and getattr(loader, "drop_last", False) else 0


def _note_dropped(samples: SampleAudit, samples_per_call: int) -> Finding:
    share = 100 * samples.num_dropped / samples.num_samples
    return Finding(
        "B006",
        f"{samples.num_dropped} of {samples.num_samples} samples ({share:.3g} %) are dropped in every epoch",
        notes=(
            f"one call takes {say_number(samples_per_call, 'sample')}",
            f"the first that no call shows: {join_names(map(str, samples.dropped))}",
        ),
        help=("pad the last batch: `FixedBatchDataset(dataset, batch_size=...)`", "or say `drop_last=True`"),
    )


def _note_repeated(samples: SampleAudit, loader: object) -> Finding:
    kind = type(getattr(loader, "sampler", None)).__name__
    return Finding(
        "B031",
        f"{samples.num_repeated} samples of {samples.num_samples} are seen a second time in an epoch",
        notes=(f"the order is that of `{kind}`", f"such as {join_names(map(str, samples.repeated))}"),
        help="pad instead, with a label that the loss ignores: `partition(FixedBatchDataset(dataset, batch_size=...))`",
    )


def _note_shapes(audit: DataAudit) -> Iterator[Finding]:
    shapes = audit.shapes
    best = shapes.choices[-1] if shapes.choices else None
    advice = "pad every batch to one length"
    if best is not None and best.num_executables > 1:
        named = "; ".join(", ".join(map(str, buckets.lengths)) for buckets in best.buckets)
        advice = f"pad to these lengths: {named}: {best.num_executables} executables, {best.padding_share:.1%} padding"
    yield Finding(
        "B030",
        f"the batches of an epoch have {shapes.num_executables} shapes, and each is an executable of its own",
        notes=[f"a length varies from {length.text}" for length in shapes.lengths],
        help=(advice, "and keep several executables: `PortOptions(max_executables=N)`"),
    )
    if shapes.choices and shapes.choices[0].padding_share >= _COSTLY_PADDING:
        yield Finding(
            "B032",
            f"padded to the longest, {shapes.choices[0].padding_share:.0%} of what is computed is padding",
            notes=str(shapes),
            help="use the buckets of the line whose padding you can afford: `porting.buckets.Buckets`",
        )
