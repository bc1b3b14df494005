"""Iterate over a dataset that another process loads ahead: `AsynchronousDataAccessor`.

The DataLoader's asynchronous modes use it.
"""

from __future__ import annotations

import os
from multiprocessing.util import Finalize
from typing import Any, Callable, Optional
from weakref import ref

import torch.utils.data

from ...support.lost_interrupts import pass_on_interrupts
from .._logging import logger
from .._options_impl import require
from ..enums import SharingStrategy
from ..errors import createPoptorchError
from .data_producer import RingSettings
from .data_ring import MessageKind
from .loading_process import LoadingProcess

__all__ = ["AsynchronousDataAccessor"]

# before Python waits for all processes that were started
_EXIT_PRIORITY = 100


class AsynchronousDataAccessor:
    """Iterate over `dataset` while a process of its own loads the next elements into memory shared with this one.

    An element is a tensor, a dictionary of tensors, an object of a type with a custom parser, or any other iterable
    of tensors, which comes back as a list. All elements have the shapes of the first. **The tensors of an element are
    overwritten some elements later**: copy those that you keep.

    `buffer_size` elements are loaded ahead, before the first iteration only with `early_preload`, and over the end of
    an epoch with `load_indefinitely`. With `rebatched_size` the rows of the elements are divided into elements of
    that many rows; a rest at the end of an epoch is dropped unless `dataset` is a DataLoader that keeps it.
    `miss_sleep_time_in_ms` has no effect: an element that is not there yet is waited for without looking again.

    Raises `poptorch.Error` when the process cannot load a first element, AssertionError for arguments that do not fit.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: Optional[int] = None,
    ) -> None:
        self._worker: Optional[LoadingProcess] = None
        if isinstance(dataset, torch.utils.data.DataLoader):
            if getattr(dataset, "_accessor", None) is not None:
                raise createPoptorchError(
                    "The DataLoader already uses an AsynchronousDataAccessor internally. Either use the existing one or"
                    " set mode='poptorch.DataLoaderMode.Sync' in the DataLoader."
                )
            loader: Any = dataset
            size = getattr(loader, "_combined_batch_size", None)
            # all elements must have the shapes of the first, so that a short last batch has to be cut in pieces
            is_even = size in (None, 1) or loader._is_user_batch_sampler_set or loader.drop_last
            advice = "The 'drop_last=False' option from the DataLoader only works if 'rebatched_size' is specified too."
            require(is_even or rebatched_size is not None, advice)
        require(rebatched_size is None or rebatched_size > 1, "rebatched_size must be None or greater than 1")
        require(buffer_size >= 1, f"buffer_size must be at least 1, not {buffer_size}")
        pass_on_interrupts()
        self.rebatched_size = rebatched_size
        self._find_dataset: Callable[[], Any] = lambda: dataset
        self._settings = RingSettings(buffer_size, rebatched_size, early_preload, load_indefinitely)
        self._epoch_owner: Any = None
        logger.debug("AsynchronousDataAccessor parent process: %d", os.getpid())
        worker = LoadingProcess(dataset, self._settings, SharingStrategy(sharing_strategy))
        # when it is collected, when the interpreter exits, and at the end of a process of multiprocessing's
        self._finalizer = Finalize(self, worker.stop, exitpriority=_EXIT_PRIORITY)
        self._worker = worker
        self._generation = self._epoch = self._next_slot = 0
        self._held_slot: Optional[int] = None
        self._is_used = False
        self._is_idle = not early_preload

    def hold_weakly(self) -> None:
        """Hold the dataset weakly, so that a loader and its process end when its user drops it."""
        self._find_dataset = ref(self._find_dataset())

    def terminate(self) -> None:
        """End the loading process: it gets a message, an interrupt after 10 s, and is terminated if it still runs."""
        # there is none if the construction failed
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is not None:
            finalizer()
        self._epoch_owner = None

    def __del__(self) -> None:
        self.terminate()

    def __len__(self) -> int:
        """Count the elements of an epoch; TypeError if the dataset has no length."""
        dataset = self._find_dataset()
        # a loader that uses this accessor itself counts the batches that were put together anew
        if self.rebatched_size is None or getattr(dataset, "_accessor", None) is self:
            return len(dataset)
        return len(dataset) * int(getattr(dataset, "batch_size", None) or 1) // self.rebatched_size

    def __iter__(self) -> AsynchronousDataAccessor:
        """Begin an epoch, with the first element again if the current one was not iterated to its end."""
        worker = self._require_worker()
        # until the epoch ends: an iterator over this accessor may be all that is left of a loader
        self._epoch_owner = self._find_dataset()
        if self._is_idle:
            worker.command(MessageKind.CONTINUE)
        elif self._is_used:
            # what is in the pipe and the ring is of the epoch that is given up
            self._generation += 1
            self._epoch += 1
            self._next_slot, self._held_slot = 0, None
            worker.command(MessageKind.RESTART, generation=self._generation, epoch=self._epoch)
        self._is_used = self._is_idle = False
        return self

    def __next__(self) -> Any:
        """Return the next element; its memory is that of an earlier one, which must no longer be used."""
        if self._is_idle:
            if self._epoch:
                raise StopIteration
            iter(self)
        # only now: the program works on the tensors of an element until it asks for the next one
        self._release_held_slot()
        worker = self._require_worker()
        # before the wait: an interrupted one is followed by a restart
        self._is_used = True
        event = worker.wait_for_event(self._generation)
        slot = self._held_slot = self._next_slot
        self._next_slot = (slot + 1) % self._settings.buffer_size
        if event.kind == MessageKind.END_OF_EPOCH:
            self._release_held_slot()
            self._is_used, self._is_idle = False, not self._settings.load_indefinitely
            self._epoch += 1
            self._epoch_owner = None
            raise StopIteration
        return worker.read(slot, is_short=event.kind == MessageKind.SHORT_ELEMENT)

    def _release_held_slot(self) -> None:
        if self._held_slot is not None:
            self._require_worker().release(self._held_slot)
            self._held_slot = None

    def _require_worker(self) -> LoadingProcess:
        if self._worker is None or not self._finalizer.still_active():
            raise createPoptorchError("The AsynchronousDataAccessor was terminated.")
        return self._worker
