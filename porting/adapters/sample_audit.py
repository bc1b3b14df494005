"""Count how often an epoch shows each sample to the model: once, or dropped, repeated or as padding.

Preflights and proofs use it. The order of a loader is drawn without reading any sample; its random streams are set back
afterwards, so that the training that follows sees what it would have seen.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from dataclasses import dataclass
from numbers import Integral
from typing import Any, List, Optional, Sequence, Tuple

from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset

from porting.adapters.fixed_batch import FixedBatchDataset, find_dataset
from porting.adapters.instances import Share
from porting.adapters.loader_position import read_streams, set_streams

__all__ = ["SampleAudit", "audit_samples"]

_MOST_EXAMPLES = 5


@dataclass(frozen=True)
class SampleAudit:
    """How often an epoch of all instances together shows each sample; positions are those in the dataset.

    `num_padding` counts the samples of a `FixedBatchDataset` that only fill its last batch; they are neither seen nor
    repeated. `dropped` and `repeated` are the first few positions of these kinds.

    >>> SampleAudit(num_samples=10, num_dropped=2, num_repeated=0, dropped=(8, 9)).is_exact
    False
    """

    num_samples: int
    num_dropped: int
    num_repeated: int
    num_padding: int = 0
    dropped: Tuple[int, ...] = ()
    repeated: Tuple[int, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether every sample is seen exactly once."""
        return not self.num_dropped and not self.num_repeated


def audit_samples(loader: object, *, samples_per_call: int, instances: int = 1) -> Optional[SampleAudit]:
    """Count how often an epoch of `loader` shows each sample; None where positions are not known in advance.

    That is so for iterable datasets, and for loaders that are not torch's. `instances` processes train together, each
    with calls of `samples_per_call` samples; what does not fill a call is dropped. They divide the samples as a port's
    loader does: by the loader's `DistributedSampler` or `porting.partition`, else in equal blocks.
    """
    dataset = getattr(loader, "dataset", None)
    if dataset is None or isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return None
    start = read_streams(loader)
    try:
        orders = _deal_orders(loader, dataset, instances)
    finally:
        set_streams(start, loader)
    if orders is None:
        return None
    shared = find_dataset(dataset, Share)
    source = dataset if shared is None else shared.dataset
    padded = find_dataset(source, FixedBatchDataset)
    uses: Counter = Counter()
    for order in orders:
        uses.update(order[: len(order) // samples_per_call * samples_per_call])
    # what fills the last batch of a padded dataset is no sample of it
    is_padding = padded.is_padding if padded is not None and padded is source else lambda _position: False
    num_padding = sum(count for position, count in uses.items() if is_padding(position))
    real = [position for position in range(len(source)) if not is_padding(position)]
    dropped = [position for position in real if position not in uses]
    repeated = [position for position in real if uses[position] > 1]
    return SampleAudit(
        num_samples=len(real),
        num_dropped=len(dropped),
        num_repeated=sum(uses[position] - 1 for position in repeated),
        num_padding=num_padding,
        dropped=tuple(dropped[:_MOST_EXAMPLES]),
        repeated=tuple(repeated[:_MOST_EXAMPLES]),
    )


def _deal_orders(loader: object, dataset: Any, instances: int) -> Optional[List[List[int]]]:
    """List the positions that each instance reads in an epoch, one list an instance."""
    shared = find_dataset(dataset, Share)
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, DistributedSampler):
        return [list(_give_rank(sampler, rank)) for rank in range(sampler.num_replicas)]
    order = _draw_order(loader, dataset)
    if order is None:
        return None
    if shared is not None and shared is dataset:
        return [_map_share(shared, rank, order) for rank in range(shared.size)]
    size = len(order) // instances
    return [order[rank * size : (rank + 1) * size] for rank in range(instances)]


def _give_rank(sampler: DistributedSampler, rank: int) -> DistributedSampler:
    other = copy.copy(sampler)
    other.rank = rank
    return other


def _map_share(share: Share, rank: int, order: Sequence[int]) -> List[int]:
    """Return the positions in the whole dataset of the samples of instance `rank`, which all read in `order`."""
    positions = share.order[rank :: share.size].tolist()
    return [positions[index] for index in order if index < len(positions)]


def _draw_order(loader: object, dataset: Any) -> Optional[List[int]]:
    """Draw the positions of an epoch as the loader's own samplers give them."""
    batches = getattr(loader, "batch_sampler", None)
    if batches is not None and type(batches) is not BatchSampler:
        order = list(itertools.chain.from_iterable(batches))
        # a sampler may yield keys of any kind, of which nothing can be counted
        return order if all(isinstance(position, Integral) for position in order) else None
    # what the loader itself would drop is counted like any other sample that no call shows
    sampler = getattr(loader, "sampler", None)
    return list(range(len(dataset)) if sampler is None else sampler)
