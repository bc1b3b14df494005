"""Loaders for the device: a torch DataLoader or a dataset in, the backend's loader out, every sample accounted for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, NoReturn, Optional, Tuple

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from porting.adapters.call_batches import CallBatches
from porting.adapters.fixed_batch import FixedBatchDataset, count_padding
from porting.adapters.instances import Share, is_shared_out
from porting.diagnostics import BatchError, Finding, OptionError, Severity, caller_place, notify
from porting.options import PortOptions

__all__ = ["LoaderReport", "to_ipu_dataloader"]


@dataclass(frozen=True)
class LoaderReport:
    """What one epoch of a converted loader covers; None where it cannot be known beforehand.

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


def to_ipu_dataloader(
    source: Any,
    backend_options: Any,
    *,
    backend: Any,
    batch_size: Optional[int] = None,
    shuffle: Optional[bool] = None,
    drop_last: Optional[bool] = None,
    num_workers: Optional[int] = None,
    seed: Optional[int] = None,
    **kwargs: Any,
) -> Any:
    """Make `backend`'s DataLoader for `source`, with a `LoaderReport` as its attribute `report`.

    `source` is a torch DataLoader, a dataset (map-style or iterable), or any sequence of samples. Of a DataLoader
    everything that says what is loaded and in which order is kept: dataset, order, `collate_fn`, workers, generator;
    arguments given here win, and further ones (`kwargs`) are those of the backend's DataLoader. `batch_size` is the
    micro-batch, by default the source loader's own batch size. `seed` gives the loader a random generator of its own
    for `shuffle=True` and the workers' seeds; a sampler keeps its own.

    **Order.** From the same state of torch's generator (or the same `generator`) the samples of an epoch come in the
    order of the source loader, and of any torch DataLoader with this dataset, `shuffle` and `persistent_workers`,
    whatever their batch sizes; only the samples dropped at the end are missing. What may differ: random numbers drawn
    while a sample is read (augmentation), because workers get whole combined batches; and a `collate_fn` sees the
    samples of a whole call at once.

    **Samples lost.** A static graph takes full batches only. When the samples do not divide, the rest of each epoch
    is dropped: with `drop_last=True` as agreed, with `drop_last=None` with a warning (B006) that counts them. A
    source loader's own `drop_last=True` agrees to what it drops itself, not to more. When the samples cannot be
    counted, the warning is B010.

    **Instances.** Several processes that train together (`backend_options.Distributed`) divide the samples among
    themselves, as the backend's DataLoader does, unless the dataset is a share of this process already (`partition`, or
    torch's `DistributedSampler`).

    Raises BatchError: B005 when there are fewer samples than one call takes; B004 (or B010, not countable) for
    `drop_last=False` with samples that do not divide. Raises OptionError (P002) for arguments that contradict each
    other, and for an order that instances which divide the samples would not agree on.
    """
    settings, ignored = _read_source(source, backend)
    own_batch_size = settings.get("batch_size")
    given = {"batch_size": batch_size, "shuffle": shuffle, "num_workers": num_workers}
    _override(settings, {**kwargs, **{name: value for name, value in given.items() if value is not None}})
    if seed is not None:
        _set_seed(settings, seed)
    if settings.pop("pin_memory", False):
        ignored.append("`pin_memory`: pinned memory serves copies to CUDA devices only")

    dataset, agreed_drop_last = settings.pop("dataset"), settings.pop("drop_last")
    sizes = _sizes(backend_options, _micro_batch(settings))
    samples = _num_samples(dataset, settings, sizes.micro_batch)
    instances = _num_dividing(dataset, settings, backend_options)
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
    if drop_last is None:
        agreed = samples % own_batch_size if agreed_drop_last and own_batch_size and samples is not None else 0
        report = replace(report, findings=_note_dropped(report, dataset, agreed))

    if "batch_sampler" in settings:
        num_joined = sizes.samples_per_call // sizes.micro_batch
        settings["batch_sampler"] = CallBatches(settings["batch_sampler"], num_joined=num_joined)
    loader = backend.DataLoader(backend_options, dataset, drop_last=True, **settings)
    loader.report = report
    for finding in report.findings:
        notify(finding)
    return loader


def _read_source(source: Any, backend: Any) -> Tuple[Dict[str, Any], List[str]]:
    """Write `source` as arguments of a torch DataLoader, and list what cannot be carried over."""
    if isinstance(source, torch.utils.data.DataLoader):
        _refuse_special_loader(source, backend)
        settings = {"dataset": source.dataset, "drop_last": source.drop_last, "pin_memory": source.pin_memory}
        settings.update(_order_of(source))
        settings.update(_loading_of(source))
        _unwrap_batch_sampler(settings)
        return settings, []
    if isinstance(source, IterableDataset) or hasattr(source, "__getitem__"):
        return {"dataset": source, "drop_last": False}, []
    raise OptionError.of(
        "P002",
        message=f"a `{type(source).__name__}` is neither a DataLoader, nor a dataset, nor a sequence",
        place=caller_place(),
        help="pass a list of its samples, or give its class the base `torch.utils.data.IterableDataset`",
    )


def _refuse_special_loader(loader: Any, backend: Any) -> None:
    """Refuse loaders that do more, or other things, than their settings say."""
    name = type(loader).__name__
    if isinstance(loader, backend.DataLoader):
        message, advice = "the loader is the backend's already", "give it to the model as it is"
    elif type(loader).__iter__ is not torch.utils.data.DataLoader.__iter__:
        message = f"`{name}` has an `__iter__` of its own, which the backend's loader would not run"
        advice = "pass its dataset instead: `loader.dataset`"
    elif loader.batch_size is None and loader.batch_sampler is None:
        message = "the loader does not batch (`batch_size=None`), so there is nothing to combine"
        advice = "pass its dataset and a `batch_size`, or give the model batches that fill a whole call"
    else:
        return
    raise OptionError.of("P002", message=message, place=caller_place(), help=advice)


def _order_of(loader: Any) -> Dict[str, Any]:
    """Say how a torch DataLoader groups and orders its samples, in the plainest arguments that mean the same."""
    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size}
    if loader.batch_size is None:
        return {"batch_sampler": loader.batch_sampler}
    sampler = loader.sampler
    own_order = getattr(sampler, "data_source", None) is loader.dataset
    if type(sampler) is SequentialSampler and own_order:
        return {"batch_size": loader.batch_size}
    if (
        type(sampler) is RandomSampler
        and own_order
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)
        and sampler.generator is loader.generator
    ):
        return {"batch_size": loader.batch_size, "shuffle": True}
    return {"batch_size": loader.batch_size, "sampler": sampler}


# The settings of a torch DataLoader that matter only to worker processes.
_WORKER_SETTINGS = ("prefetch_factor", "timeout", "multiprocessing_context", "persistent_workers")


def _loading_of(loader: Any) -> Dict[str, Any]:
    """Say how a torch DataLoader reads and joins its samples, without what torch would choose by itself."""
    settings = {
        "num_workers": loader.num_workers,
        "collate_fn": None if loader.collate_fn is torch.utils.data.default_collate else loader.collate_fn,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
        "in_order": None if getattr(loader, "in_order", True) else False,
    }
    if loader.num_workers:
        settings.update({name: getattr(loader, name) for name in _WORKER_SETTINGS})
    return {name: value for name, value in settings.items() if value is not None}


def _override(settings: Dict[str, Any], given: Dict[str, Any]) -> None:
    """Put the caller's arguments in the place of the source's, together with those that depend on them."""
    if "shuffle" in given and ("sampler" in settings or "batch_sampler" in settings):
        raise OptionError.of(
            "P002",
            message=f"`shuffle={given['shuffle']}` was given, but the loader has a sampler of its own",
            place=caller_place(),
            help="leave `shuffle` out to keep the sampler's order, or pass the dataset instead: `loader.dataset`",
        )
    if "sampler" in given or "batch_sampler" in given:
        for name in ("shuffle", "sampler", "batch_sampler"):
            settings.pop(name, None)
    if "batch_sampler" in given and "batch_size" not in given:
        settings.pop("batch_size", None)
    if given.get("num_workers") == 0:
        for name in _WORKER_SETTINGS:
            settings.pop(name, None)
    settings.update(given)
    _unwrap_batch_sampler(settings)


def _unwrap_batch_sampler(settings: Dict[str, Any]) -> None:
    """Say with `sampler` and `batch_size` what one of torch's own batch samplers says."""
    if type(settings.get("batch_sampler")) is BatchSampler:
        plain = settings.pop("batch_sampler")
        settings.setdefault("batch_size", plain.batch_size)
        settings.update(sampler=plain.sampler, drop_last=plain.drop_last)


def _set_seed(settings: Dict[str, Any], seed: int) -> None:
    if settings.get("generator") is not None:
        raise OptionError.of(
            "P002",
            message="both `seed` and a `generator` decide the order",
            place=caller_place(),
            help="leave one of them out",
        )
    settings["generator"] = torch.Generator()
    settings["generator"].manual_seed(seed)


def _micro_batch(settings: Dict[str, Any]) -> int:
    """Find the size of a micro-batch; a batch sampler decides it alone, and PopTorch then takes no `batch_size`."""
    sampler = settings.get("batch_sampler")
    given = settings.pop("batch_size", None) if sampler is not None else settings.get("batch_size")
    says = getattr(sampler, "batch_size", None)
    if given is not None and says is not None and given != says:
        raise OptionError.of(
            "P002",
            message=f"`batch_size` is {given}, but the batch sampler makes batches of {says}",
            place=caller_place(),
            help=f"leave `batch_size` out, or build the batch sampler with {given}",
        )
    size = says if given is None else given
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    raise OptionError.of(
        "P002",
        message=f"`batch_size` is {size!r}, not a positive number of samples",
        place=caller_place(),
        help="pass the micro-batch: `batch_size=options.micro_batch`",
    )


def _sizes(backend_options: Any, micro_batch: int) -> PortOptions:
    """Read from the vendor's options how samples are grouped; replicas that share their input count once.

    Older SDKs know no replicas that share their input.
    """
    return PortOptions(
        micro_batch=micro_batch,
        accumulation=backend_options.Training.gradient_accumulation,
        replicas=backend_options.replication_factor // getattr(backend_options, "input_group_size", 1),
        device_iterations=backend_options.device_iterations,
    )


def _num_dividing(dataset: Any, settings: Dict[str, Any], backend_options: Any) -> int:
    """Count the instances that the backend's loader divides `dataset` among; settle in `settings` whether it does."""
    instances = int(backend_options.Distributed.numProcesses)
    if instances > 1 and (is_shared_out(dataset) or isinstance(settings.get("sampler"), DistributedSampler)):
        settings.setdefault("auto_distributed_partitioning", False)
    if instances == 1 or not settings.get("auto_distributed_partitioning", True):
        return 1
    if settings.get("shuffle") and not backend_options.exists("random_seed"):
        message = f"each of the {instances} instances would shuffle the samples in an order of its own"
        _refuse_own_order(message, "or give all the same `PortOptions(seed=...)`")
    if settings.get("sampler") is not None:
        name = type(settings["sampler"]).__name__
        _refuse_own_order(f"a `{name}` orders all samples, and each of the {instances} instances has a share of them")
    return instances


def _refuse_own_order(message: str, *other_ways: str) -> NoReturn:
    way = "share the samples out in an order that all draw: `porting.partition(dataset, shuffle=True)`"
    raise OptionError.of("P002", message=message, place=caller_place(), help=(way, *other_ways))


def _num_samples(dataset: Any, settings: Dict[str, Any], micro_batch: int) -> Optional[int]:
    """Count the samples of an epoch; None when that takes an epoch."""
    batch_sampler = settings.get("batch_sampler")
    if batch_sampler is not None:
        num_batches = _length(batch_sampler)
        return None if num_batches is None else num_batches * micro_batch
    # Each worker ends with a rest of its own, and how large that is depends on how the dataset divides itself.
    if isinstance(dataset, IterableDataset) and settings.get("num_workers", 0) > 1:
        return None
    return _length(settings.get("sampler", dataset))


def _length(sized: Any) -> Optional[int]:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _refuse_impossible(report: LoaderReport, sizes: PortOptions, dataset: Any, drop_last: Optional[bool]) -> None:
    if report.samples is not None and not report.calls_per_epoch:
        raise BatchError.of(
            "B005",
            message=f"the dataset has {report.samples} samples, but one call takes {report.samples_per_call}",
            place=caller_place(),
            notes=(_how_samples_are_grouped(sizes), *_who_shares(report)),
            help=_ways_to_fill_a_call(report.samples, sizes),
        )
    if drop_last is False and report.samples_lost_per_epoch != 0:
        countable = report.samples is not None
        raise BatchError.of(
            "B004" if countable else "B010",
            message=f"`drop_last=False`, but {_how_many_are_left(report)}",
            place=caller_place(),
            notes=("a static graph takes full batches only", _how_samples_are_grouped(sizes)),
            help=_ways_to_lose_nothing(report, dataset, countable=countable),
        )


def _note_dropped(report: LoaderReport, dataset: Any, agreed: int) -> Tuple[Finding, ...]:
    """Say how many samples are lost without anybody having asked for it, or that nobody knows."""
    lost = report.samples_lost_per_epoch
    if lost is None:
        advice = (
            "say `drop_last=True` if that is meant, or load from a map-style dataset, which can be counted and padded"
        )
        message = (
            f"the samples cannot be counted: up to {report.samples_per_call - 1} per worker are dropped in every epoch"
        )
        return (Finding("B010", message, place=caller_place(), help=advice, severity=Severity.WARNING),)
    if lost <= agreed:
        return ()
    notes = [f"one call takes {report.samples_per_call} samples, and an epoch is {report.calls_per_epoch} calls"]
    notes += _who_shares(report)
    if agreed:
        notes.append(f"with `drop_last=True` and its own batch size, the loader dropped {agreed}")
    if isinstance(dataset, FixedBatchDataset):
        notes.append(f"the `FixedBatchDataset` was padded to batches of {dataset.batch_size}")
    help = (*_ways_to_lose_nothing(report, dataset, countable=True), "or say `drop_last=True` if the loss is meant")
    message = f"{lost} of {report.samples} samples ({report.percent_lost:.3g} %) are dropped in every epoch"
    return (Finding("B006", message, place=caller_place(), notes=notes, help=help),)


def _how_samples_are_grouped(sizes: PortOptions) -> str:
    return (
        f"one call: micro-batch {sizes.micro_batch} x accumulation {sizes.accumulation} x replicas {sizes.replicas}"
        f" x device iterations {sizes.device_iterations} = {sizes.samples_per_call} samples"
    )


def _who_shares(report: LoaderReport) -> Tuple[str, ...]:
    return (f"{report.instances} instances share the samples",) if report.instances > 1 else ()


def _how_many_are_left(report: LoaderReport) -> str:
    if report.samples is None:
        return f"it is not known whether the samples fill calls of {report.samples_per_call}"
    lost, size = report.samples_lost_per_epoch, report.samples_per_call
    return f"{lost} of {report.samples} samples are left over when one call takes {size}"


def _ways_to_lose_nothing(report: LoaderReport, dataset: Any, *, countable: bool) -> Tuple[str, ...]:
    if not countable:
        return ("load from a map-style dataset: `FixedBatchDataset` can pad its last batch",)
    is_share = isinstance(dataset, Share)
    batch_size = report.samples_per_call * (dataset.size if is_share else report.instances)
    padded = f"FixedBatchDataset(dataset, batch_size={batch_size})"
    return (
        f"pad the last batch: `{f'partition({padded})' if is_share else padded}`",
        f"or choose sizes whose product divides {report.samples}",
    )


def _ways_to_fill_a_call(samples: int, sizes: PortOptions) -> Tuple[str, ...]:
    """Suggest the one factor whose lowering is enough, the one that changes training least before the others."""
    if samples == 0:
        return ("pass a dataset that has samples",)
    for name in ("device_iterations", "accumulation", "replicas", "micro_batch"):
        factor = getattr(sizes, name)
        most = samples * factor // sizes.samples_per_call
        if most >= 1:
            lower = f"lower `{name}` from {factor} to {most}" + (" or less" if most > 1 else "")
            break
    else:
        lower = "lower more than one of these factors"
    return (lower, f"or pad: `FixedBatchDataset(dataset, batch_size={sizes.samples_per_call})`")
