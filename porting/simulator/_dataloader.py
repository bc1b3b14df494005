"""PopTorch's `DataLoader`: a torch loader whose batches hold the samples of a whole device call."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.utils.data

from porting.capture.structure import flatten_tensors, rebuild
from porting.simulator._logging import logger
from porting.simulator.enums import DataLoaderMode
from porting.simulator.errors import createPoptorchError, not_simulated
from porting.simulator.options import Options

__all__ = ["DataLoader"]


class DataLoader(torch.utils.data.DataLoader):
    """Load combined batches: `batch_size` x device iterations x replicas x gradient accumulation samples each.

    Everything not named here goes to `torch.utils.data.DataLoader` as it is. Two things differ from torch's own
    loader: `drop_last` is True unless told otherwise, and `options` is frozen by being used here. The processes that
    load a map-style dataset are never more than this machine has cores; what they load does not depend on their
    number. (What an iterable dataset yields does, so there the number asked for is kept.)

    The asynchronous modes and the partitioning of a dataset between processes are not simulated: they raise.
    """

    def __init__(
        self,
        options: Options,
        dataset: Any,
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
        self._accessor: Optional[Any] = None
        self._is_user_batch_sampler_set = batch_sampler is not None
        self.batch_sampler_drop_last: Optional[bool] = None
        if batch_sampler is not None:
            _check_alone(options, batch_size, shuffle, auto_distributed_partitioning)
            batch_size = getattr(batch_sampler, "batch_size", 1)
            self.batch_sampler_drop_last = drop_last
        if not isinstance(options, Options):
            raise AssertionError(f"Expected poptorch.Options as the DataLoader's options but got {type(options)}.")
        options._freeze()
        self._combined_batch_size: Optional[int] = None
        self._num_batches_to_combine: Optional[int] = None
        if batch_size is not None:
            self._options = options
            self._num_batches_to_combine = _num_micro_batches(options)
            self._combined_batch_size = batch_size * self._num_batches_to_combine

        partitioned = auto_distributed_partitioning and options.Distributed.numProcesses > 1
        if isinstance(dataset, torch.utils.data.IterableDataset):
            _check_iterable(num_workers, kwargs.get("worker_init_fn"), partitioned=partitioned)
        else:
            if not drop_last and self._combined_batch_size and self._num_batches_to_combine:
                _warn_about_short_last_batch(
                    dataset,
                    batch_sampler,
                    num_batches=self._num_batches_to_combine,
                    batch_size=self._combined_batch_size,
                )
            if partitioned:
                _refuse_partitioning(options, batch_size, shuffle)
            num_workers = _cap_num_workers(num_workers)
        if mode != DataLoaderMode.Sync:
            not_simulated(
                f"poptorch.DataLoaderMode.{DataLoaderMode(mode).name}", "batches are only loaded synchronously"
            )

        with_sampler = self._is_user_batch_sampler_set
        super().__init__(
            dataset,
            batch_size=1 if with_sampler else self._combined_batch_size,
            shuffle=bool(shuffle),
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            drop_last=False if with_sampler else drop_last,
            persistent_workers=num_workers > 0 if persistent_workers is None else persistent_workers,
            **kwargs,
        )

    @property
    def combinedBatchSize(self) -> Optional[int]:
        """Samples in each batch, those of one device call; None without batching."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The very options given, frozen; as in PopTorch 3.4 there are none without batching (AttributeError)."""
        return self._options

    def terminate(self) -> None:
        """Stop an asynchronous accessor's process; there is none in the simulated mode, so nothing happens."""

    def __del__(self) -> None:
        """Terminate, as PopTorch does."""
        self.terminate()

    def __iter__(self) -> Any:
        """Start an epoch: yield combined batches."""
        batches = super().__iter__()
        count = self._num_batches_to_combine
        if self._is_user_batch_sampler_set and count is not None and count != 1:
            return _combine(batches, count, drop_last=bool(self.batch_sampler_drop_last))
        return batches

    def _get_iterator(self) -> Any:
        iterator: Any = super()._get_iterator()
        dataset: Any = self.dataset
        if self.num_workers == 0 and _is_read_at_once(self):
            iterator._dataset_fetcher = _TensorDatasetFetcher(dataset.tensors)
        return iterator


def _check_alone(
    options: Any, batch_size: Optional[int], shuffle: Optional[bool], auto_distributed_partitioning: bool
) -> None:
    if batch_size != 1 or shuffle:
        raise createPoptorchError("`batch_sampler` option is mutually exclusive with batch_size, shuffle.")
    if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
        raise createPoptorchError(
            "`batch_sampler` option is mutually exclusive with auto_distributed_partitioning=True."
        )


def _num_micro_batches(options: Options) -> int:
    """Count the different micro-batches of one device call; replicas of one input group share theirs."""
    num_groups = options.replication_factor // options.input_group_size
    return int(options.device_iterations * num_groups * options.Training.gradient_accumulation)


def _check_iterable(num_workers: int, worker_init_fn: Optional[Callable[[int], None]], *, partitioned: bool) -> None:
    if partitioned:
        raise AssertionError("auto_distributed_partitioning not supported for IterableDataset")
    if num_workers > 1 and worker_init_fn is None:
        logger.warning(
            f"IterableDataset used with num_workers={num_workers} but no worker_init_fn specified: as a result the"
            f" DataLoader will return {num_workers} times each element in the dataset"
            " (see torch.utils.data.IterableDataset on how to give each worker a part of its own)."
        )


def _warn_about_short_last_batch(dataset: Any, batch_sampler: Any, *, num_batches: int, batch_size: int) -> None:
    """Warn as PopTorch does when `drop_last=False` leaves a last batch that no static graph takes."""
    advice = "To avoid having to handle this special case switch to drop_last=True"
    if batch_sampler is None:
        rest = len(dataset) % batch_size
        if rest:
            logger.warning(
                f"The number of elements in the dataset ({len(dataset)}) is not divisible by the number of elements"
                f" processed per step ({batch_size}) and drop_last=False. The last tensor will have"
                f" a batch size of {rest}. {advice}"
            )
    elif not hasattr(batch_sampler, "__len__"):
        logger.warning(
            "`batch_sampler` __len__ method is not implemented and drop_last=False. The last tensor might have a"
            f" smaller batch size than the others. {advice}"
        )
    else:
        rest = len(batch_sampler) % num_batches
        if rest:
            logger.warning(
                f"The number of batches in the `batch_sampler` ({len(batch_sampler)}) is not divisible by the"
                f" number of batches processed per step ({num_batches}) and drop_last=False. The"
                f" last tensor will combine {rest} batches. {advice}"
            )


def _refuse_partitioning(options: Options, batch_size: Optional[int], shuffle: Optional[bool]) -> None:
    if shuffle and not options.exists("random_seed"):
        raise AssertionError(
            "When using auto_distributed_partitioning you must set poptorch.Options.randomSeed() to ensure that tensors"
            " are in the same order in all processes."
        )
    if batch_size is None:
        raise AssertionError("batch_size=None not allowed when using auto_distributed_partitioning.")
    not_simulated(
        "poptorch.DataLoader(auto_distributed_partitioning=True)", "every process would train on the whole dataset"
    )


def _cap_num_workers(num_workers: int) -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    num_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    if num_workers > num_cores:
        _say_workers_are_capped(num_workers, num_cores)
    return min(num_workers, num_cores)


@lru_cache(maxsize=None)
def _say_workers_are_capped(num_workers: int, num_cores: int) -> None:
    logger.warning(
        f"num_workers={num_workers} is more than the {num_cores} cores of this machine: the DataLoader uses"
        f" {num_cores} worker processes. The batches are the same."
    )


def _combine(batches: Iterable[Any], count: int, *, drop_last: bool) -> Iterator[Any]:
    """Yield each `count` consecutive batches as one."""
    group: List[Any] = []
    for batch in batches:
        group.append(batch)
        if len(group) == count:
            yield _concatenate(group)
            group = []
    if group and not drop_last:
        yield _concatenate(group)


def _concatenate(group: Sequence[Any]) -> Any:
    """Concatenate batches along dimension 0, tensor by tensor, in the structure of the latest."""
    latest = group[-1]
    rows = [flatten_tensors(batch, like=latest) for batch in group]
    if len({len(row) for row in rows}) > 1:
        raise createPoptorchError("The batches of the `batch_sampler` to combine have different numbers of tensors.")
    return rebuild(latest, [torch.cat(column) for column in zip(*rows)])


class _TensorDatasetFetcher:
    """Reads a batch of a `TensorDataset` with one indexing per tensor, where torch makes one call per sample."""

    def __init__(self, tensors: Tuple[torch.Tensor, ...]) -> None:
        self._tensors = tensors

    def fetch(self, indices: Sequence[int]) -> List[torch.Tensor]:
        """Return what `default_collate([dataset[i] for i in indices])` does: a list, in fresh memory."""
        rows = torch.tensor(indices)
        return [tensor.index_select(0, rows) for tensor in self._tensors]


# Exactly these: a subclass may yield other indices, or other samples for them.
_PLAIN_SAMPLERS = (torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler)


def _is_read_at_once(loader: DataLoader) -> bool:
    """Tell whether `_TensorDatasetFetcher` gives this loader's batches bit for bit."""
    return (
        type(loader.dataset) is torch.utils.data.TensorDataset
        and type(loader.batch_sampler) is torch.utils.data.BatchSampler
        and type(loader.batch_sampler.sampler) in _PLAIN_SAMPLERS
        and loader.collate_fn is torch.utils.data.default_collate
        and all(_has_plain_rows(tensor) for tensor in loader.dataset.tensors)
    )


def _has_plain_rows(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
