"""Share the samples of a dataset out among the instances of a program, and sum counts over all of them.

An instance is one of several processes that train one model together. Their programs call `partition` and
`sum_over_instances`.
"""

from __future__ import annotations

import collections
import importlib
import os
from typing import Any, Deque, List, Optional, Sequence, Union

import torch
import torch.utils.data

from porting.adapters.fixed_batch import Samples, read_samples
from porting.diagnostics import BatchError, DeviceError, OptionError
from porting.support.process import leave_group_at_exit, this_instance

__all__ = ["Share", "average_over_instances", "partition", "sum_over_instances"]


class Share(torch.utils.data.Dataset):
    """The samples of a dataset that belong to one of several instances; `partition` makes it.

    `order` is the position in the dataset of each sample of all instances, from which instance `index` takes every
    `size`-th. `num_repeated` counts the samples at the end that come a second time, to make all shares as long.
    """

    def __init__(
        self, dataset: Samples, *, index: int, size: int, shuffle: bool, seed: int, force_equal_length: bool
    ) -> None:
        self.dataset = dataset
        self.index = index
        self.size = size
        self.num_repeated = -len(dataset) % size if force_equal_length else 0
        self.epoch = 0
        self._seed = seed if shuffle else None
        # in shared memory, so that loading processes that were started before see the order of each epoch
        self.order = torch.empty(len(dataset) + self.num_repeated, dtype=torch.int64).share_memory_()
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of `epoch`, counted from 0; the same in all instances. Without shuffling nothing changes."""
        self.epoch = epoch
        num_samples = len(self.order) - self.num_repeated
        if self._seed is None:
            order = torch.arange(num_samples)
        else:
            order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(self._seed + epoch))
        repeats = -(-len(self.order) // num_samples)
        self.order.copy_(order.repeat(repeats)[: len(self.order)])

    def __len__(self) -> int:
        """Count the samples of this instance."""
        return len(range(self.index, len(self.order), self.size))

    def __getitem__(self, index: int) -> Any:
        """Return a sample of this instance; beyond its end an IndexError."""
        return self.dataset[self._find_position(index)]

    def __getitems__(self, indices: Sequence[int]) -> List[Any]:
        """Return several samples, read at once where the dataset can."""
        return read_samples(self.dataset, [self._find_position(index) for index in indices])

    def _find_position(self, index: int) -> int:
        within = index + len(self) if index < 0 else index
        if not 0 <= within < len(self):
            raise IndexError(f"index {index} is out of range for the {len(self)} samples of instance {self.index}")
        return int(self.order[self.index + within * self.size])


def partition(
    dataset: Samples,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    *,
    shuffle: bool = False,
    seed: int = 0,
    force_equal_length: bool = True,
) -> Share:
    """Take the share of `dataset` of instance `rank` of `size`; by default those of this process.

    Instance i gets samples i, i + size, i + 2 size, ... of the dataset, or with `shuffle` of one order for all, drawn
    from `seed`. So the k-th batches of all instances together are the k-th batch of a single process with batches
    `size` times as large. `Share.set_epoch(n)` draws the order of another epoch.

    All shares must have the same length where a step waits for all instances. With `force_equal_length` the first
    samples come again at the end until they are; without, lengths differ by one at most, and each sample comes once. To
    count each sample once all the same, pad before: `partition(FixedBatchDataset(...))`.

    Loaders of a ported model take a share as it is and do not divide it again. Raises BatchError B004 for a dataset
    without length or samples, OptionError P002 for a `rank` that is not among `size`.

    >>> [list(partition("abcdefg", rank, 2)) for rank in (0, 1)]
    [['a', 'c', 'e', 'g'], ['b', 'd', 'f', 'a']]
    """
    instance = this_instance()
    rank = instance.index if rank is None else rank
    size = instance.size if size is None else size
    if not 0 <= rank < size:
        remedy = "ranks count from 0 to size - 1; leave both out inside the instances themselves"
        raise OptionError.at_caller("P002", message=f"`rank` is {rank} of a `size` of {size}", help=remedy)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and len(dataset)):
        raise BatchError.at_caller(
            "B004",
            message=f"`{type(dataset).__name__}` has no samples by index to share out",
            help="pass a map-style dataset, with `__len__`, `__getitem__` and at least one sample",
        )
    return Share(dataset, index=rank, size=size, shuffle=shuffle, seed=seed, force_equal_length=force_equal_length)


def sum_over_instances(values: Union[torch.Tensor, Sequence[float]]) -> torch.Tensor:
    """Add up a tensor, or numbers, over all instances: each gets the sum, in float64 for numbers.

    The instances meet through `torch.distributed` where it is initialised or torchrun says where, else through Horovod
    (`horovod.torch`, part of the vendor's SDK). All of them have to call this. A single process gets its values
    back. Raises DeviceError D008 when there is no way to the other instances.

    >>> sum_over_instances([3, 4]).tolist()
    [3.0, 4.0]
    """
    total = values.detach().clone() if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=torch.float64)
    instance = this_instance()
    if instance.size == 1:
        return total
    distributed = torch.distributed
    if not distributed.is_initialized() and os.environ.get("MASTER_ADDR"):
        distributed.init_process_group("gloo")
        leave_group_at_exit()
    if distributed.is_initialized():
        distributed.all_reduce(total)
        _LAST_SUMS.append(total)
        return total
    try:
        horovod = importlib.import_module("horovod.torch")
    except ImportError as error:
        raise DeviceError.at_caller(
            "D008",
            message=f"instance {instance.index} of {instance.size} cannot reach the others",
            notes=f"neither `torch.distributed` is initialised nor `horovod.torch` can be imported: {error}",
            help="call `torch.distributed.init_process_group` first, or start it with torchrun or `porting run`",
        ) from error
    horovod.init()
    reduced: torch.Tensor = horovod.allreduce(total, average=False)
    return reduced


def average_over_instances(value: float) -> float:
    """Return the mean of the instances' values, the same for all, as what a training decides by has to be."""
    return float(sum_over_instances([value])) / this_instance().size


# Gloo's threads release a tensor some time after its sum is there. Whichever thread releases it last destroys the
# Python object, and needs the interpreter's lock to do so. When a program ends, the main thread holds this lock while
# it waits for Gloo's threads: with torch 2.0 half of all programs that ended soon after a sum hung. The last few sums
# are therefore kept here, so that Gloo's reference is never the last one.
_LAST_SUMS: Deque[torch.Tensor] = collections.deque(maxlen=4)
