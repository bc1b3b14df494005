"""One process's share of a dataset that several processes divide among themselves."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch
import torch.utils.data

from ..options import Options

__all__ = ["_SubDataset"]


class _SubDataset(torch.utils.data.Dataset):
    """The contiguous range of `dataset` that belongs to this process, of the dataset as it is or shuffled globally.

    `step` is the number of samples of a combined batch. With `drop_last` all processes get the same number of whole
    batches; otherwise their lengths differ by one sample at most, and nothing is left over. Order and range lie in
    shared memory, so that loading processes that were started before see every change.
    """

    def __init__(self, dataset: Any, opts: Options, step: int, drop_last: bool) -> None:
        num_samples = len(dataset)
        num_processes, process = opts.Distributed.numProcesses, opts.Distributed.processId
        if drop_last:
            per_process = step * (num_samples // (step * num_processes))
            self._base_offset = process * per_process
            self._length = min(per_process, num_samples - self._base_offset)
            # those that no process has: `swap_range` begins behind them every other epoch
            self._leftovers = num_samples % per_process if per_process else 0
        else:
            per_process, rest = divmod(num_samples, num_processes)
            self._base_offset = process * per_process + min(process, rest)
            self._length = per_process + (rest > process)
            self._leftovers = 0
        self.dataset = dataset
        self._seed: Optional[int] = opts.random_seed if opts.exists("random_seed") else None
        self._generator_state: Optional[torch.Tensor] = None
        self._shared_offset = torch.tensor(self._base_offset).share_memory_()
        self._global_indices: Optional[torch.Tensor] = None

    def shuffle_global_indices(self) -> None:
        """Draw the next order of the whole dataset, the same one in all processes; AssertionError without a seed."""
        advice = "Seed must be set when shuffling so that all instances end up with the same shuffled global indices."
        if self._seed is None:
            raise AssertionError(advice)
        # from its state, because a generator itself cannot be pickled
        generator = torch.Generator().manual_seed(self._seed)
        if self._generator_state is not None:
            generator.set_state(self._generator_state)
        if self._global_indices is None:
            self._global_indices = torch.empty(len(self.dataset), dtype=torch.int64).share_memory_()
        torch.randperm(len(self.dataset), generator=generator, out=self._global_indices)
        self._generator_state = generator.get_state()

    def swap_range(self) -> None:
        """Begin the range at its base and behind the samples left over in turn, so that those are loaded too."""
        is_at_base = int(self._shared_offset) == self._base_offset
        self._shared_offset.fill_(self._base_offset + (self._leftovers if is_at_base else 0))

    def order_state(self) -> Tuple[Optional[torch.Tensor], int]:
        """Return what decides the next order: the generator's state, and where the range begins."""
        return self._generator_state, int(self._shared_offset)

    def restore_order_state(self, state: Tuple[Optional[torch.Tensor], int]) -> None:
        """Go back to an earlier `order_state`: the next order is the one that followed it."""
        self._generator_state, offset = state
        self._shared_offset.fill_(offset)

    def global_rows_of(self, rows: Union[range, torch.Tensor]) -> Union[range, torch.Tensor]:
        """Translate positions in this share, all of them inside it, to positions in the dataset."""
        offset = int(self._shared_offset)
        if isinstance(rows, range):
            rows = range(rows.start + offset, rows.stop + offset)
            return rows if self._global_indices is None else self._global_indices[rows.start : rows.stop]
        return rows + offset if self._global_indices is None else self._global_indices[rows + offset]

    def __len__(self) -> int:
        """Count the samples of this process."""
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Return a sample of this process's range; outside of it an IndexError."""
        return self.dataset[self._global_index(index)]

    def __getitems__(self, indices: Sequence[int]) -> List[Any]:
        """Return several samples, read at once where the dataset can."""
        translated = [self._global_index(index) for index in indices]
        read_at_once = getattr(self.dataset, "__getitems__", None)
        return read_at_once(translated) if read_at_once else [self.dataset[index] for index in translated]

    def _global_index(self, index: int) -> int:
        if not 0 <= index < self._length:
            raise IndexError(f"index {index} is out of range for the {self._length} samples of this process")
        position = int(self._shared_offset) + index
        return position if self._global_indices is None else int(self._global_indices[position])
