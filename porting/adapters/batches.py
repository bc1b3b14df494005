"""Turn a torch DataLoader or a dataset into the backend's loader, and account for every sample.

`ported.dataloader` is made of it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Collection, Dict, Iterator, List, Optional, Sized

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from porting.adapters.fixed_batch import find_dataset
from porting.adapters.instances import Share
from porting.adapters.loader_report import report_epoch
from porting.diagnostics import OptionError, notify
from porting.options import PortOptions, is_count

__all__ = ["CallBatches", "override_settings", "read_source", "to_ipu_dataloader"]


def to_ipu_dataloader(
    source: object,
    backend_options: Any,
    *,
    backend: ModuleType,
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
    settings = read_source(source, backend)
    own_batch_size = settings.get("batch_size")
    given = {"batch_size": batch_size, "shuffle": shuffle, "num_workers": num_workers}
    kwargs.update({name: value for name, value in given.items() if value is not None})
    override_settings(settings, kwargs, seed=seed)
    is_pinned = settings.pop("pin_memory", False)
    dataset, agreed_drop_last = settings.pop("dataset"), settings.pop("drop_last")
    sizes = PortOptions(
        micro_batch=_find_micro_batch(settings),
        accumulation=backend_options.Training.gradient_accumulation,
        # replicas that share their input count once; older SDKs know none of these
        replicas=backend_options.replication_factor // getattr(backend_options, "input_group_size", 1),
        device_iterations=backend_options.device_iterations,
    )
    samples = _count_samples(dataset, settings, sizes.micro_batch)
    report = report_epoch(
        sizes,
        dataset,
        samples=samples,
        instances=_count_dividing_instances(dataset, settings, backend_options),
        drop_last=drop_last,
        batch_size_agreed=own_batch_size if agreed_drop_last else None,
        ignored=("`pin_memory`: pinned memory serves copies to CUDA devices only",) if is_pinned else (),
    )
    if "batch_sampler" in settings:
        num_joined = sizes.samples_per_call // sizes.micro_batch
        settings["batch_sampler"] = CallBatches(settings["batch_sampler"], num_joined=num_joined)
    loader = backend.DataLoader(backend_options, dataset, drop_last=True, **settings)
    loader.report = report
    for finding in report.findings:
        notify(finding)
    return loader


class CallBatches:
    """The batches of `batches`, of which a loader joins `num_joined` to one call; everything else is its own.

    torch takes the length of a loader from its batch sampler. PopTorch's loader joins batches after that, and would
    give the number of micro-batches.

    >>> batches = CallBatches([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], num_joined=2)
    >>> len(batches), list(batches)[0]
    (2, [0, 1])
    """

    def __init__(self, batches: Collection[List[int]], *, num_joined: int) -> None:
        self._batches = batches
        self._num_joined = num_joined

    def __iter__(self) -> Iterator[List[int]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches) // self._num_joined

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_batches":  # asked for while a copy is made, before it has any
            raise AttributeError(name)
        return getattr(self._batches, name)


def _find_micro_batch(settings: Dict[str, Any]) -> int:
    """Find the size of a micro-batch; a batch sampler decides it alone, and PopTorch then takes no `batch_size`."""
    sampler = settings.get("batch_sampler")
    given = settings.pop("batch_size", None) if sampler is not None else settings.get("batch_size")
    says = getattr(sampler, "batch_size", None)
    size: Any = says if given is None else given
    if given is not None and says is not None and given != says:
        fault = f"`batch_size` is {given}, but the batch sampler makes batches of {says}"
        remedy = f"leave `batch_size` out, or build the batch sampler with {given}"
    elif not is_count(size):
        fault = f"`batch_size` is {size!r}, not a positive number of samples"
        remedy = "pass the micro-batch: `batch_size=options.micro_batch`"
    else:
        return int(size)
    raise OptionError.at_caller("P002", message=fault, help=remedy)


def _count_dividing_instances(dataset: object, settings: Dict[str, Any], backend_options: Any) -> int:
    """Count the instances that the backend's loader divides `dataset` among; settle in `settings` whether it does."""
    instances = int(backend_options.Distributed.numProcesses)
    if instances > 1 and (
        find_dataset(dataset, Share) is not None or isinstance(settings.get("sampler"), DistributedSampler)
    ):
        settings.setdefault("auto_distributed_partitioning", False)
    if instances == 1 or not settings.get("auto_distributed_partitioning", True):
        return 1
    ways = ["share the samples out in an order that all draw: `porting.partition(dataset, shuffle=True)`"]
    if settings.get("shuffle") and not backend_options.exists("random_seed"):
        fault = f"each of the {instances} instances would shuffle the samples in an order of its own"
        ways.append("or give all the same `PortOptions(seed=...)`")
    elif settings.get("sampler") is not None:
        name = type(settings["sampler"]).__name__
        fault = f"a `{name}` orders all samples, and each of the {instances} instances has a share of them"
    else:
        return instances
    raise OptionError.at_caller("P002", message=fault, help=ways)


def _count_samples(dataset: object, settings: Dict[str, Any], micro_batch: int) -> Optional[int]:
    """Count the samples of an epoch; None when that takes an epoch."""
    batch_sampler = settings.get("batch_sampler")
    if batch_sampler is not None:
        num_batches = _find_length(batch_sampler)
        return None if num_batches is None else num_batches * micro_batch
    # Each worker drops its own incomplete batch, whose size depends on how the dataset divides itself.
    if isinstance(dataset, IterableDataset) and settings.get("num_workers", 0) > 1:
        return None
    return _find_length(settings.get("sampler", dataset))


def _find_length(sized: Sized) -> Optional[int]:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def read_source(source: object, backend: ModuleType) -> Dict[str, Any]:
    """Return the arguments of a torch DataLoader that mean the same as `source`."""
    if isinstance(source, torch.utils.data.DataLoader):
        _refuse_special_loader(source, backend)
        settings = {"dataset": source.dataset, "drop_last": source.drop_last, "pin_memory": source.pin_memory}
        settings.update(**_read_order(source), **_read_loading(source))
        _unwrap_batch_sampler(settings)
        return settings
    if isinstance(source, IterableDataset) or hasattr(source, "__getitem__"):
        return {"dataset": source, "drop_last": False}
    raise OptionError.at_caller(
        "P002",
        message=f"a `{type(source).__name__}` is neither a DataLoader, nor a dataset, nor a sequence",
        help="pass a list of its samples, or give its class the base `torch.utils.data.IterableDataset`",
    )


def _refuse_special_loader(loader: torch.utils.data.DataLoader, backend: ModuleType) -> None:
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
    raise OptionError.at_caller("P002", message=message, help=advice)


def _read_order(loader: torch.utils.data.DataLoader) -> Dict[str, Any]:
    """Read how a torch DataLoader groups and orders its samples, as the plainest arguments that mean the same."""
    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size}
    if loader.batch_size is None:
        return {"batch_sampler": loader.batch_sampler}
    settings: Dict[str, Any] = {"batch_size": loader.batch_size}
    sampler = loader.sampler
    is_own = getattr(sampler, "data_source", None) is loader.dataset
    if type(sampler) is RandomSampler and is_own and not sampler.replacement:
        is_plain = sampler.num_samples == len(sampler.data_source) and sampler.generator is loader.generator
        settings.update({"shuffle": True} if is_plain else {"sampler": sampler})
    elif type(sampler) is not SequentialSampler or not is_own:
        settings["sampler"] = sampler
    return settings


# The settings of a torch DataLoader that matter only to worker processes.
_WORKER_SETTINGS = ("prefetch_factor", "timeout", "multiprocessing_context", "persistent_workers")


def _read_loading(loader: torch.utils.data.DataLoader) -> Dict[str, Any]:
    """Read how a torch DataLoader reads and joins its samples; torch's own defaults are left out."""
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


def override_settings(settings: Dict[str, Any], given: Dict[str, Any], *, seed: Optional[int]) -> None:
    """Put the caller's arguments in the place of the source's, together with those that depend on them.

    A `seed` gives the loader a random generator of its own.
    """
    if "shuffle" in given and ("sampler" in settings or "batch_sampler" in settings):
        raise OptionError.at_caller(
            "P002",
            message=f"`shuffle={given['shuffle']}` was given, but the loader has a sampler of its own",
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
    if seed is not None:
        if settings.get("generator") is not None:
            raise OptionError.at_caller(
                "P002", message="both `seed` and a `generator` decide the order", help="leave one of them out"
            )
        settings["generator"] = torch.Generator().manual_seed(seed)


def _unwrap_batch_sampler(settings: Dict[str, Any]) -> None:
    """Replace one of torch's own batch samplers by its `sampler` and `batch_size`."""
    if type(settings.get("batch_sampler")) is BatchSampler:
        plain = settings.pop("batch_sampler")
        settings.setdefault("batch_size", plain.batch_size)
        settings.update(sampler=plain.sampler, drop_last=plain.drop_last)
