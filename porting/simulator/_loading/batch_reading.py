"""Whole batches of tensor datasets, read with one indexing per tensor where torch makes one call per sample."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, Subset, TensorDataset

from .sub_dataset import _SubDataset

__all__ = ["TensorBatchFetcher", "tensor_batch_fetcher"]

_Translation = Callable[[torch.Tensor], torch.Tensor]

# Exactly these: a subclass may yield other indices, or other samples for them.
_PLAIN_SAMPLERS = (SequentialSampler, RandomSampler)


class TensorBatchFetcher:
    """Reads batches of a `TensorDataset`; `translations` turn a loader's indices into positions in the tensors."""

    def __init__(self, tensors: Tuple[torch.Tensor, ...], translations: Sequence[_Translation]) -> None:
        self._tensors = tensors
        self._translations = translations

    def fetch(self, indices: Sequence[int]) -> List[torch.Tensor]:
        """Return what `default_collate([dataset[i] for i in indices])` does: a list, in fresh memory."""
        rows = torch.tensor(indices)
        for translate in self._translations:
            rows = translate(rows)
        return [tensor.index_select(0, rows) for tensor in self._tensors]


def tensor_batch_fetcher(loader: Any) -> Optional[TensorBatchFetcher]:
    """Return a fetcher that gives this loader's batches bit for bit, or None where there is none.

    The dataset may be a subset, or a process's share, of a `TensorDataset`.
    """
    if (
        loader.collate_fn is not torch.utils.data.default_collate
        or type(loader.batch_sampler) is not BatchSampler
        or type(loader.batch_sampler.sampler) not in _PLAIN_SAMPLERS
    ):
        return None
    dataset, translations = loader.dataset, []
    while type(dataset) in (Subset, _SubDataset):
        if type(dataset) is Subset:
            if not _are_plain_indices(dataset.indices):
                return None
            translations.append(_lookup(torch.tensor(dataset.indices, dtype=torch.int64)))
            dataset = dataset.dataset
        else:
            translations.append(dataset.global_indices_of)
            dataset = dataset._dataset
    if type(dataset) is not TensorDataset or not all(map(_has_plain_rows, dataset.tensors)):
        return None
    return TensorBatchFetcher(dataset.tensors, translations)


def _are_plain_indices(indices: Any) -> bool:
    """Tell whether a subset's indices may be read once and for all: not negative, and numbers."""
    return isinstance(indices, (list, range)) and all(type(index) is int and index >= 0 for index in indices)


def _lookup(table: torch.Tensor) -> _Translation:
    return lambda rows: table.index_select(0, rows)


def _has_plain_rows(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
