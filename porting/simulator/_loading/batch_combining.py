"""The batches of a user's batch sampler, several of them combined into the one that a device call takes."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, Sequence

import torch

from ...structure import flatten_tensors, rebuild
from ..errors import createPoptorchError

__all__ = ["combine_batches"]


def combine_batches(batches: Iterable[Any], count: int, *, drop_last: bool) -> Iterator[Any]:
    """Yield each `count` consecutive batches as one, concatenated along dimension 0 tensor by tensor.

    The structure is that of the latest batch. An incomplete group at the end is left out with `drop_last`. Raises
    `poptorch.Error` for batches with different numbers of tensors.
    """
    group: List[Any] = []
    for batch in batches:
        group.append(batch)
        if len(group) == count:
            yield _concatenate(group)
            group = []
    if group and not drop_last:
        yield _concatenate(group)


def _concatenate(group: Sequence[Any]) -> Any:
    latest = group[-1]
    rows = [flatten_tensors(batch, like=latest) for batch in group]
    if len({len(row) for row in rows}) > 1:
        raise createPoptorchError("The batches of the `batch_sampler` to combine have different numbers of tensors.")
    return rebuild(latest, [torch.cat(column) for column in zip(*rows)])
