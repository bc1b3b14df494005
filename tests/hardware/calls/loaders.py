"""DataLoader: sizes, what is dropped, samplers, modes, distributed parts and what is refused."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler, TensorDataset


def _numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


class _Counting(IterableDataset):
    """Seven numbers, one after the other."""

    def __iter__(self) -> Any:
        return iter(torch.arange(7))


class _Endless:
    """A sampler of batches that has no length."""

    def __iter__(self) -> Any:
        return iter([[0, 1], [2, 3], [4, 5]])


def _options(
    poptorch: Any, iterations: int = 1, accumulation: int = 1, replicas: int = 1, processes: int = 1, seed: Any = None
) -> Any:
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.Distributed.configureProcessId(processes - 1, processes)
    return options if seed is None else options.randomSeed(seed)


def _rows(loader: Any) -> List[Any]:
    return [
        batch[0].tolist()
        if isinstance(batch, (list, tuple))
        else {key: value.tolist() for key, value in batch.items()}
        if isinstance(batch, dict)
        else batch.tolist()
        for batch in loader
    ]


def _read(dataset: Callable[[], Any], settings: Dict[str, Any], **options: int) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        given = {name: value(poptorch) if callable(value) else value for name, value in settings.items()}
        loader = poptorch.DataLoader(_options(poptorch, **options), dataset(), **given)
        try:
            found = {"size": loader.combinedBatchSize, "rows": _rows(loader), "again": _rows(loader)}
            return {**found, "length": len(loader) if hasattr(loader.dataset, "__len__") else None}
        finally:
            loader.terminate()

    return call


def _mode(name: str) -> Callable[[Any], Any]:
    return lambda p: getattr(p.DataLoaderMode, name)


def _fork(p: Any) -> Any:
    return {"sharing_strategy": p.SharingStrategy.Fork}


def _ahead(dataset: Callable[[], Any], settings: Dict[str, Any], mode: str = "Async", **options: int) -> Any:
    return _read(dataset, {"mode": _mode(mode), "async_options": _fork, **settings}, **options)


def _frozen(poptorch: Any) -> Any:
    options = poptorch.Options()
    poptorch.DataLoader(options, _numbers(4))
    options.deviceIterations(2)


def _accessor(use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        return use(poptorch, poptorch.DataLoader(poptorch.Options(), _numbers(5), batch_size=2))

    return call


def _around(poptorch: Any, loader: Any) -> Any:
    accessor = poptorch.AsynchronousDataAccessor(loader, sharing_strategy=poptorch.SharingStrategy.Fork)
    try:
        return [len(accessor), [batch[0].tolist() for batch in accessor]]
    finally:
        accessor.terminate()


def _around_itself(poptorch: Any) -> Any:
    loader = poptorch.DataLoader(
        poptorch.Options(), _numbers(4), mode=poptorch.DataLoaderMode.Async, async_options=_fork(poptorch)
    )
    try:
        return poptorch.AsynchronousDataAccessor(loader)
    finally:
        loader.terminate()


_TEN: Callable[[], Any] = lambda: _numbers(10)  # noqa: E731
_PAIRS: Callable[[Any], Any] = lambda p: BatchSampler(SequentialSampler(range(10)), 2, False)  # noqa: E731

CALLS: Dict[str, Callable[[Any], Any]] = {
    "one at a time": _read(lambda: _numbers(3), {}),
    "a batch": _read(_TEN, {"batch_size": 3}),
    "a batch and the rest": _read(_TEN, {"batch_size": 3, "drop_last": False}),
    "iterations": _read(_TEN, {"batch_size": 2}, iterations=2),
    "iterations, accumulation and replicas": _read(
        lambda: _numbers(17), {"batch_size": 2}, iterations=2, accumulation=2, replicas=2
    ),
    "a rest that warns": _read(_TEN, {"batch_size": 2, "drop_last": False}, iterations=3),
    "too little for a batch": _read(lambda: _numbers(3), {"batch_size": 4}),
    "nothing at all": _read(lambda: _numbers(0), {"batch_size": 4}),
    "no batching": _read(lambda: _numbers(3), {"batch_size": None}),
    "no batching and nothing dropped": _read(lambda: _numbers(3), {"batch_size": None, "drop_last": False}),
    "no batching has no options": lambda p: (
        p.DataLoader(p.Options(), _numbers(3), batch_size=None, drop_last=False).options
    ),
    "the options": lambda p: p.DataLoader(_options(p, iterations=3), _numbers(6)).options.device_iterations,
    "options are frozen": _frozen,
    "options that are none": lambda p: p.DataLoader({}, _numbers(3)),
    "no options": lambda p: p.DataLoader(None, _numbers(3)),
    "a batch of zero": _read(_TEN, {"batch_size": 0}),
    "a negative batch": _read(_TEN, {"batch_size": -1}),
    "a batch of another type": _read(_TEN, {"batch_size": 2.0}),
    "an unknown argument": _read(_TEN, {"bad": 1}),
    "an iterable": _read(_Counting, {"batch_size": 2}),
    "an iterable and the rest": _read(_Counting, {"batch_size": 2, "drop_last": False}),
    "an iterable with two workers": lambda p: p.DataLoader(p.Options(), _Counting(), num_workers=2).persistent_workers,
    "workers that stay": lambda p: [
        p.DataLoader(p.Options(), _numbers(3), num_workers=n).persistent_workers for n in (0, 1)
    ],
    "persistent workers without any": lambda p: p.DataLoader(p.Options(), _numbers(3), persistent_workers=True),
    "dictionaries": _read(lambda: [{"x": i, "y": -i} for i in range(4)], {"batch_size": 2}),
    "a sampler of batches": _read(_TEN, {"batch_sampler": _PAIRS}),
    "a sampler of batches, combined": _read(_TEN, {"batch_sampler": _PAIRS}, iterations=2),
    "a sampler of batches, and the rest": _read(_TEN, {"batch_sampler": _PAIRS, "drop_last": False}, iterations=2),
    "a sampler of batches without length": _read(
        _TEN, {"batch_sampler": lambda p: _Endless(), "drop_last": False}, iterations=2
    ),
    "a sampler of batches and a size": _read(_TEN, {"batch_sampler": _PAIRS, "batch_size": 2}),
    "a sampler of batches, shuffled": _read(_TEN, {"batch_sampler": _PAIRS, "shuffle": True}),
    "a sampler of batches in two processes": _read(_TEN, {"batch_sampler": _PAIRS}, processes=2),
    "a sampler and shuffled": _read(_TEN, {"sampler": lambda p: SequentialSampler(range(10)), "shuffle": True}),
    "the second of two processes": _read(_TEN, {"batch_size": 2}, processes=2),
    "the second of two processes, and the rest": _read(_TEN, {"batch_size": 2, "drop_last": False}, processes=2),
    "two processes, shuffled without a seed": _read(_TEN, {"shuffle": True}, processes=2),
    "two processes, shuffled": _read(_TEN, {"shuffle": True, "batch_size": 5}, processes=2, seed=3),
    "two processes without batching": _read(_TEN, {"batch_size": None, "drop_last": False}, processes=2),
    "two processes of an iterable": _read(_Counting, {}, processes=2),
    "two processes that read all": _read(_TEN, {"batch_size": 5, "auto_distributed_partitioning": False}, processes=2),
    "ahead": _ahead(_TEN, {"batch_size": 3}),
    "ahead, and the rest": _ahead(_TEN, {"batch_size": 3, "drop_last": False}),
    "ahead, one at a time and the rest": _ahead(lambda: _numbers(3), {"drop_last": False}),
    "ahead, rebatched": _ahead(_TEN, {"batch_size": 4, "rebatched_worker_size": 3}, mode="AsyncRebatched"),
    "ahead, rebatched, and the rest": _ahead(
        _TEN, {"batch_size": 4, "rebatched_worker_size": 3, "drop_last": False}, mode="AsyncRebatched"
    ),
    "ahead, rebatched from larger batches": _ahead(
        _TEN, {"batch_size": 2, "rebatched_worker_size": 3}, mode="AsyncRebatched"
    ),
    "ahead, rebatched to one": _ahead(_TEN, {}, mode="AsyncRebatched"),
    "ahead, rebatched by hand": _read(
        _TEN, {"batch_size": 2, "mode": _mode("Async"), "async_options": {"rebatched_size": 2}}
    ),
    "ahead, rebatched twice": _read(
        _TEN, {"batch_size": 2, "mode": _mode("AsyncRebatched"), "async_options": {"rebatched_size": 2}}
    ),
    "ahead, an unknown option": _read(_TEN, {"mode": _mode("Async"), "async_options": {"bad": 2}}),
    "ahead, dictionaries": _ahead(lambda: [{"x": i, "y": -i} for i in range(4)], {"batch_size": 2}),
    "ahead, an iterable": _ahead(_Counting, {"batch_size": 2}),
    "ahead, a sampler of batches": _ahead(_TEN, {"batch_sampler": _PAIRS}, iterations=2),
    "an accessor around a loader": _accessor(_around),
    "an accessor around a loader that has one": _around_itself,
    "an accessor that rebatches to one": _accessor(
        lambda p, loader: p.AsynchronousDataAccessor(loader, rebatched_size=1)
    ),
    "an accessor around a loader with a rest": lambda p: p.AsynchronousDataAccessor(
        p.DataLoader(p.Options(), _numbers(5), batch_size=2, drop_last=False)
    ),
}
