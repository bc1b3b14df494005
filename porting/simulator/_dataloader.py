"""Implement PopTorch's `DataLoader`: a torch loader whose batches hold all samples of a device call."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional

import torch
import torch.utils.data
from torch.utils.data import Sampler

from ..support.process import usable_cores
from ..torch_insides.loaders import exchange_reader, find_reader
from . import trouble
from ._loading.async_accessor import AsynchronousDataAccessor
from ._loading.batch_reading import BatchMemory, choose_batch_reader, combine_batches
from ._loading.row_sources import _SubDataset
from ._logging import logger
from ._options_impl import require
from .enums import DataLoaderMode
from .errors import createPoptorchError
from .options import Options

__all__ = ["AsynchronousDataAccessor", "BatchIterator", "DataLoader", "WaitingTime", "_SubDataset"]


class DataLoader(torch.utils.data.DataLoader):
    """Load combined batches: `batch_size` x device iterations x replicas x gradient accumulation samples each.

    Everything not named here goes to `torch.utils.data.DataLoader` as it is. Two things differ from torch's own
    loader: `drop_last` is True unless told otherwise, and `options` is frozen by being used here. The processes that
    load a map-style dataset are never more than this machine has cores; what they load does not depend on their
    number. (The samples of an iterable dataset do, so there the given number is kept.)

    `mode`: ``Async`` loads ahead in a process of its own (`AsynchronousDataAccessor`, with `async_options`), and
    ``AsyncRebatched`` also puts the short last batches of the loading processes together, each of
    `rebatched_worker_size` samples. Where options say that the program runs as several processes,
    `auto_distributed_partitioning` gives each its own part of the dataset, shuffled over all of it.
    """

    def __init__(
        self,
        options: Options,
        dataset: torch.utils.data.Dataset,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: Optional[bool] = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Optional[Mapping[str, Any]] = None,
        rebatched_worker_size: Optional[int] = None,
        batch_sampler: Optional[Iterable[List[Any]]] = None,
        **kwargs: Any,
    ) -> None:
        self._accessor: Optional[AsynchronousDataAccessor] = None
        self._memory, self._waiting = BatchMemory(), WaitingTime()
        self._is_user_batch_sampler_set = batch_sampler is not None
        self.batch_sampler_drop_last: Optional[bool] = None
        self.rebatched_drop_last = True
        self._shuffles_globally = self._is_rebatched = False
        if batch_sampler is not None:
            _check_alone(options, batch_size, shuffle, auto_distributed_partitioning)
            # only to know how many samples a call takes: torch gets the sampler and no size
            batch_size = getattr(batch_sampler, "batch_size", 1)
            self.batch_sampler_drop_last = drop_last
        is_known = isinstance(options, Options)
        require(is_known, f"Expected poptorch.Options as the DataLoader's options but got {type(options)}.")
        # their numbers decide the size of batches, so they may not change any more
        options._freeze()
        self._combined_batch_size: Optional[int] = None
        self._num_batches_to_combine: Optional[int] = None
        if batch_size is not None:
            self._options = options
            # the different micro-batches of one call: replicas of one input group share theirs
            num_groups = options.replication_factor // options.input_group_size
            num_batches = int(options.device_iterations * num_groups * options.Training.gradient_accumulation)
            self._num_batches_to_combine = num_batches
            self._combined_batch_size = batch_size * num_batches

        partitioned = auto_distributed_partitioning and options.Distributed.numProcesses > 1
        if isinstance(dataset, torch.utils.data.IterableDataset):
            _check_iterable(num_workers, kwargs.get("worker_init_fn"), partitioned=partitioned)
        else:
            self._warn_about_short_last_batch(dataset, batch_sampler, kwargs.get("sampler"), drop_last=drop_last)
            if partitioned:
                dataset = self._take_share(dataset, options, shuffle=bool(shuffle), drop_last=drop_last)
            num_workers = _cap_num_workers(num_workers, usable_cores())

        size = 1 if self._is_user_batch_sampler_set else self._combined_batch_size
        rebatched_size = self._find_rebatched_size(mode, drop_last=drop_last)
        if rebatched_size is not None:
            self._is_rebatched, self.rebatched_drop_last = True, drop_last
            size = _choose_worker_batch_size(size, rebatched_size, rebatched_worker_size)
        # Without batching torch refuses `drop_last`, the default here; a loader that is to be rebatched drops nothing.
        is_rebatching = rebatched_size is not None or mode == DataLoaderMode.AsyncRebatched
        keeps_short_batches = self._is_user_batch_sampler_set or is_rebatching
        super().__init__(
            dataset,
            batch_size=size,
            shuffle=bool(shuffle) and not self._shuffles_globally,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            drop_last=False if keeps_short_batches else drop_last,
            persistent_workers=num_workers > 0 if persistent_workers is None else persistent_workers,
            **kwargs,
        )
        if mode != DataLoaderMode.Sync:
            self._load_ahead(dict(async_options or {}), rebatched_size)

    @property
    def combinedBatchSize(self) -> Optional[int]:
        """The samples of each batch, which are those of one device call; None without batching."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The very options given, frozen; as in PopTorch 3.4 there are none without batching (AttributeError)."""
        return self._options

    @property
    def waiting_seconds(self) -> float:
        """The seconds that programs have waited for batches of this loader, in all; PopTorch has no such figure."""
        return self._waiting.seconds

    @property
    def waiting(self) -> WaitingTime:
        """The counter of `waiting_seconds`; it can still be read when the loader is gone."""
        return self._waiting

    def terminate(self) -> None:
        """End the loading process of an asynchronous mode; in the synchronous mode nothing happens."""
        # also called for a loader whose construction failed
        accessor = self.__dict__.get("_accessor")
        if accessor is not None:
            accessor.terminate()

    def __del__(self) -> None:
        self.terminate()

    def __getstate__(self) -> Dict[str, Any]:
        """Leave out the processes that load for this loader: a copy of it starts its own."""
        return {**self.__dict__, "_accessor": None, "_iterator": None}

    def __len__(self) -> int:
        """Count the batches of an epoch; TypeError if the dataset has no length."""
        rebatched_size = None if self._accessor is None else self._accessor.rebatched_size
        if rebatched_size is None:
            return super().__len__()
        # torch would count those that the workers load
        dataset: Any = self.dataset
        num_batches, rest = divmod(len(dataset), rebatched_size)
        return num_batches + (rest > 0 and not self.rebatched_drop_last)

    def __iter__(self) -> Any:
        """Start an epoch: yield combined batches."""
        if self._accessor is not None:
            return BatchIterator(iter(self._accessor), self._waiting.fetch_next)
        if self._shuffles_globally:
            share: Any = self.dataset
            # at each epoch, in all processes alike
            share.shuffle_global_indices()
            share.swap_range()
        batches: Iterator[Any] = super().__iter__()
        self._read_batches_at_once(batches)
        if trouble.injections:
            batches = BatchIterator(batches, trouble.fetch_batch)
        count = self._num_batches_to_combine
        if self._is_user_batch_sampler_set and not self._is_rebatched and count is not None and count != 1:
            batches = combine_batches(batches, count, drop_last=bool(self.batch_sampler_drop_last))
        return BatchIterator(batches, self._waiting.fetch_next)

    def _read_batches_at_once(self, iterator: Iterator[Any]) -> None:
        """Let an iterator that loads in this process read whole batches; loading processes read in their own way."""
        ordinary = find_reader(iterator) if self.num_workers == 0 else None
        reader = None if ordinary is None else choose_batch_reader(self, ordinary, self._memory)
        if reader is not None:
            exchange_reader(iterator, reader, reader.find_rows(self.batch_sampler))

    def _warn_about_short_last_batch(
        self, dataset: Any, batch_sampler: Any, sampler: Optional[Sampler], *, drop_last: bool
    ) -> None:
        num_batches, size = self._num_batches_to_combine, self._combined_batch_size
        # a sampler may show samples more than once, or not all
        read = dataset if sampler is None else sampler
        if drop_last and size and batch_sampler is None and hasattr(read, "__len__") and 0 < len(read) < size:
            name = "dataset" if sampler is None else "sampler"
            logger.warning(
                f"The DataLoader has no batches: the {name} has {len(read)} elements, a call processes {size}, and"
                " drop_last=True drops a batch that is not full"
            )
        # PopTorch warns of a sampler's batches even where the rest is dropped: no static graph takes a short batch.
        if not num_batches or not size or (drop_last and batch_sampler is None):
            return
        advice = "To avoid having to handle this special case switch to drop_last=True"
        if batch_sampler is not None and not hasattr(batch_sampler, "__len__"):
            logger.warning(
                "The `batch_sampler` __len__ method is not implemented and drop_last=False. The last tensor might have"
                f" a smaller batch size than the others. {advice}"
            )
            return
        if batch_sampler is None:
            count, per_step = len(dataset), size * self._options.Distributed.numProcesses
            items, whose, fate = "elements", "in the dataset", f"have a batch size of {count % per_step}"
        else:
            count, per_step = len(batch_sampler), num_batches
            items, whose, fate = "batches", "generated by the batch sampler", f"combine {count % per_step} batches"
        if count % per_step:
            logger.warning(
                f"The number of {items} {whose} ({count}) is not divisible by the number of {items} processed per step"
                f" ({per_step}) and drop_last=False. The last tensor will {fate}. {advice}"
            )

    def _take_share(
        self, dataset: torch.utils.data.Dataset, options: Options, *, shuffle: bool, drop_last: bool
    ) -> _SubDataset:
        """Give this process its part of the dataset, in an order that all processes agree on."""
        require(
            options.exists("random_seed") or not shuffle,
            "When using auto_distributed_partitioning you must set poptorch.Options.randomSeed() to ensure that tensors"
            " are in the same order in all processes.",
        )
        if self._combined_batch_size is None:
            raise AssertionError("batch_size=None not allowed when using auto_distributed_partitioning.")
        self._shuffles_globally = shuffle
        return _SubDataset(dataset, options, self._combined_batch_size, drop_last)

    def _find_rebatched_size(self, mode: DataLoaderMode, *, drop_last: bool) -> Optional[int]:
        """Return the size of the batches that are rebuilt from those of the workers, None without rebatching."""
        if mode == DataLoaderMode.AsyncRebatched:
            return self._combined_batch_size
        keeps_rest = mode == DataLoaderMode.Async and not drop_last and not self._is_user_batch_sampler_set
        size = self._combined_batch_size
        return size if keeps_rest and size is not None and size > 1 else None

    def _load_ahead(self, async_options: Dict[str, Any], rebatched_size: Optional[int]) -> None:
        # Whatever the mode is; the words are PopTorch's.
        advice = "You cannot use DataLoaderMode.AsyncRebatched and manually specify the rebatched_size in async_options"
        require("rebatched_size" not in async_options, advice)
        accessor = AsynchronousDataAccessor(self, **async_options, rebatched_size=rebatched_size)
        # or the two would keep each other, and the process, until a garbage collection
        accessor.hold_weakly()
        self._accessor = accessor


class WaitingTime:
    """Seconds, added up."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def fetch_next(self, batches: Iterator[Any]) -> Any:
        """Return the next of `batches` and count the time, also where it is an exception."""
        start = time.perf_counter()
        try:
            return next(batches)
        finally:
            self.seconds += time.perf_counter() - start


class BatchIterator:
    """Iterates over `batches` and gets each with `fetch`; otherwise it behaves as that iterator.

    It is no generator, because torch's iterators can give a further batch after one that failed.
    """

    def __init__(self, batches: Iterator[Any], fetch: Callable[[Iterator[Any]], Any]) -> None:
        self._batches, self._fetch = batches, fetch

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._fetch(self._batches)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self._batches, name)


def _check_alone(
    options: Options, batch_size: Optional[int], shuffle: Optional[bool], auto_distributed_partitioning: bool
) -> None:
    if batch_size != 1 or shuffle:
        raise createPoptorchError("`batch_sampler` option is mutually exclusive with batch_size, shuffle.")
    if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
        raise createPoptorchError(
            "`batch_sampler` option is mutually exclusive with auto_distributed_partitioning=True."
        )


def _check_iterable(num_workers: int, worker_init_fn: Optional[Callable[[int], None]], *, partitioned: bool) -> None:
    require(not partitioned, "auto_distributed_partitioning not supported for IterableDataset")
    if num_workers > 1 and worker_init_fn is None:
        logger.warning(
            f"IterableDataset used with num_workers={num_workers} but no worker_init_fn specified: as a result the"
            f" DataLoader will return {num_workers} times each element in the dataset"
            " (see torch.utils.data.IterableDataset on how to give each worker a part of its own)."
        )


def _choose_worker_batch_size(size: Optional[int], rebatched_size: int, wanted: Optional[int]) -> Optional[int]:
    if wanted is None:
        return size
    advice = f"The rebatched_worker_size ({wanted}) must be <= to the combined batch size ({rebatched_size})"
    require(wanted <= rebatched_size, advice)
    return wanted


@lru_cache(maxsize=None)
def _cap_num_workers(num_workers: int, num_cores: int) -> int:
    """Return a number of processes that all have a core; a program with many loaders gets one message."""
    if num_workers > num_cores:
        logger.warning(
            f"num_workers={num_workers} is more than the {num_cores} cores of this machine: the DataLoader uses"
            f" {num_cores} worker processes. The batches are the same."
        )
    return min(num_workers, num_cores)
