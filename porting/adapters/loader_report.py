"""Report how many samples an epoch of a loader covers, with findings about those that it drops.

Every loader of a port has a `LoaderReport`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Sequence, Tuple

from porting.adapters.fixed_batch import FixedBatchDataset, count_padding
from porting.adapters.instances import Share
from porting.diagnostics import BatchError, Finding, Severity, caller_place
from porting.options import PortOptions

__all__ = ["LoaderReport", "report_epoch"]


@dataclass(frozen=True)
class LoaderReport:
    """What one epoch of a converted loader covers; None where it cannot be known in advance.

    `samples` counts what the source yields, `padding_per_epoch` of them being padding of a `FixedBatchDataset`. Where
    `instances` processes divide the source among themselves, samples and those lost are those of all of them.
    `ignored` says which settings of the source have no effect, and why.

    >>> LoaderReport(samples=10, samples_per_call=4, calls_per_epoch=2, samples_lost_per_epoch=2).percent_lost
    20.0
    """

    samples: Optional[int]
    samples_per_call: int
    calls_per_epoch: Optional[int]
    samples_lost_per_epoch: Optional[int]
    padding_per_epoch: int = 0
    findings: Tuple[Finding, ...] = ()
    ignored: Tuple[str, ...] = ()
    instances: int = 1

    @property
    def percent_lost(self) -> Optional[float]:
        """The share of samples that an epoch does not show to the model, in percent."""
        if self.samples is None or self.samples_lost_per_epoch is None:
            return None
        return 100.0 * self.samples_lost_per_epoch / self.samples


def report_epoch(
    sizes: PortOptions,
    dataset: object,
    *,
    samples: Optional[int],
    instances: int,
    drop_last: Optional[bool],
    batch_size_agreed: Optional[int],
    ignored: Sequence[str],
) -> LoaderReport:
    """Count what an epoch of `dataset` covers, and note (B006, B010) what it drops without the user's consent.

    With `drop_last=True` the user agrees to all of it, with None to what a loader of batches of `batch_size_agreed`
    drops. Raises BatchError: B005 without a full call, B004 or B010 for a rest that may not be dropped.
    """
    samples_of_all = sizes.samples_per_call * instances
    report = LoaderReport(
        samples=samples,
        samples_per_call=sizes.samples_per_call,
        calls_per_epoch=None if samples is None else samples // samples_of_all,
        samples_lost_per_epoch=None if samples is None else samples % samples_of_all,
        padding_per_epoch=count_padding(dataset),
        ignored=tuple(ignored),
        instances=instances,
    )
    _refuse_impossible(report, sizes, dataset, drop_last)
    if drop_last is not None:
        return report
    agreed = samples % batch_size_agreed if batch_size_agreed and samples is not None else 0
    return replace(report, findings=_note_dropped(report, dataset, agreed))


def _refuse_impossible(report: LoaderReport, sizes: PortOptions, dataset: object, drop_last: Optional[bool]) -> None:
    grouping = (
        f"one call: micro-batch {sizes.micro_batch} x accumulation {sizes.accumulation} x replicas {sizes.replicas}"
        f" x device iterations {sizes.device_iterations} = {sizes.samples_per_call} samples"
    )
    if report.samples is not None and not report.calls_per_epoch:
        raise BatchError.at_caller(
            "B005",
            message=f"the dataset has {report.samples} samples, but one call takes {report.samples_per_call}",
            notes=(grouping, *_describe_instances(report)),
            help=_suggest_full_call(report.samples, sizes, report.instances),
        )
    if drop_last is False and report.samples_lost_per_epoch != 0:
        lost, size = report.samples_lost_per_epoch, report.samples_per_call
        rest = f"{lost} of {report.samples} samples are left over when one call takes {size}"
        if report.samples is None:
            rest = f"it is not known whether the samples fill calls of {size}"
        raise BatchError.at_caller(
            "B010" if report.samples is None else "B004",
            message=f"`drop_last=False`, but {rest}",
            notes=("a static graph takes full batches only", grouping),
            help=_suggest_no_loss(report, dataset),
        )


def _note_dropped(report: LoaderReport, dataset: object, agreed: int) -> Tuple[Finding, ...]:
    lost, size = report.samples_lost_per_epoch, report.samples_per_call
    if lost is None:
        advice = (
            "say `drop_last=True` if that is meant, or load from a map-style dataset, which can be counted and padded"
        )
        message = f"the samples cannot be counted: up to {size - 1} per worker are dropped in every epoch"
        return (Finding("B010", message, place=caller_place(), help=advice, severity=Severity.WARNING),)
    if lost <= agreed:
        return ()
    notes = [f"one call takes {size} samples, and an epoch is {report.calls_per_epoch} calls"]
    notes += _describe_instances(report)
    if agreed:
        notes.append(f"with `drop_last=True` and its own batch size, the loader dropped {agreed}")
    if isinstance(dataset, FixedBatchDataset):
        notes.append(f"the `FixedBatchDataset` was padded to batches of {dataset.batch_size}")
    help = (*_suggest_no_loss(report, dataset), "or say `drop_last=True` if these samples may be left out")
    message = f"{lost} of {report.samples} samples ({report.percent_lost:.3g} %) are dropped in every epoch"
    return (Finding("B006", message, place=caller_place(), notes=notes, help=help),)


def _describe_instances(report: LoaderReport) -> Tuple[str, ...]:
    return (f"{report.instances} instances share the samples",) if report.instances > 1 else ()


def _suggest_no_loss(report: LoaderReport, dataset: object) -> Tuple[str, ...]:
    if report.samples is None:
        return ("load from a map-style dataset: `FixedBatchDataset` can pad its last batch",)
    num_shares = dataset.size if isinstance(dataset, Share) else report.instances
    padded = f"FixedBatchDataset(dataset, batch_size={report.samples_per_call * num_shares})"
    return (
        f"pad the last batch: `{f'partition({padded})' if isinstance(dataset, Share) else padded}`",
        f"or choose sizes whose product divides {report.samples}",
    )


def _suggest_full_call(samples: int, sizes: PortOptions, instances: int) -> Tuple[str, ...]:
    """Suggest the one factor whose lowering is enough, the one that changes training least before the others."""
    samples_of_all = sizes.samples_per_call * instances
    if samples == 0:
        return ("pass a dataset that has samples",)
    lower = "lower more than one of these factors"
    for name in ("micro_batch", "replicas", "accumulation", "device_iterations"):
        factor = getattr(sizes, name)
        most = samples * factor // samples_of_all
        if most >= 1:
            lower = f"lower `{name}` from {factor} to {most}" + (" or less" if most > 1 else "")
    return (lower, f"or pad: `FixedBatchDataset(dataset, batch_size={samples_of_all})`")
