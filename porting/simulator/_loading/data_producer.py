"""Walk through the dataset in the loading process and fill the ring; `AsynchronousDataAccessor` reads from it."""

from __future__ import annotations

import os
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import torch
import torch.utils.data

from ...torch_insides.loaders import end_processes, find_running_iterator
from ..errors import createPoptorchError
from .data_ring import DataRing, ElementStructure, Message, MessageKind, receive, send
from .row_sources import _SubDataset

__all__ = ["DataProducer", "RingSettings"]

_SECONDS_BETWEEN_LOOKS_AT_THE_PARENT = 2.0


class RingSettings(NamedTuple):
    """The number and the size of the elements that a loading process loads ahead."""

    buffer_size: int
    rebatched_size: Optional[int]
    early_preload: bool
    load_indefinitely: bool


class _RequestError(Exception):
    """The program wants a new epoch before the current one ended, or no more data; it may be gone as well."""

    def __init__(self, command: Message) -> None:
        super().__init__()
        self.command = command


_STOP = Message(MessageKind.STOP)


class DataProducer:
    """Fills a ring with the elements of `dataset`, epoch after epoch, while the program has released slots.

    `commands` must not block. With a `rebatched_size` the rows of the elements are distributed to slots of that size.
    """

    def __init__(
        self, dataset: torch.utils.data.Dataset, settings: RingSettings, commands: Connection, events: Connection
    ) -> None:
        # The program may be two epochs behind the ring that is full of epochs with a single element each.
        self._epochs = _Epochs(dataset, num_remembered=settings.buffer_size + 2)
        self._settings, self._commands, self._events = settings, commands, events
        self._waits_for_iteration = not settings.early_preload
        self._keeps_rest = getattr(dataset, "rebatched_drop_last", True) is False
        self._generation = 0
        self._ring: Any = None
        self._slot, self._num_used, self._num_rows = 0, 0, 0
        self._first_rows: Optional[List[torch.Tensor]] = None
        self._may_continue = False
        self._parent_pid = os.getppid()

    def interrupt(self) -> bool:
        """Tell whether an interruption ends the loading; otherwise it was meant for the program, which may continue."""
        if self._ring is None or self._ring.is_stopping_mem.item():
            return True
        self._ring.was_interrupted_mem.fill_(True)
        return False

    def run(self) -> None:
        """Load until the program stops it or has ended; errors of the dataset are passed on."""
        try:
            self._load_first()
            while True:
                try:
                    self._finish_first()
                    self._load_epoch()
                    if not self._settings.load_indefinitely:
                        self._wait_for_continue()
                    self._epochs.begin(self._epochs.number + 1)
                    continue
                except _RequestError as request:
                    command = request.command
                # not in the handler: the error holds the old iterator, whose processes end before new ones start
                if command.kind == MessageKind.STOP:
                    return
                # events of the old generation may be in the pipe still: the program drops them by their number
                self._generation = command.generation
                self._slot = self._num_used = self._num_rows = 0
                self._first_rows, self._may_continue, self._waits_for_iteration = None, False, False
                self._ring.indices_mem.zero_()
                self._epochs.begin(command.epoch)
        finally:
            self._epochs.close()

    def _load_first(self) -> None:
        """Load the first element, which decides the size of the ring, and report it to the program."""
        self._epochs.begin(0)
        nothing = object()
        element = next(self._epochs.elements, nothing)
        if element is nothing:
            raise createPoptorchError("The Dataset is empty")
        self._structure = ElementStructure(element)
        tensors = self._structure.take_tensors(element)
        self._ring = DataRing(tensors, self._settings.buffer_size, self._settings.rebatched_size)
        if self._settings.rebatched_size is None:
            # in its slot before the program can look at the ring
            self._ring.write(0, tensors)
            self._ring.indices_mem[0] = True
            self._events.send((self._structure, self._ring))
            self._publish_slot(MessageKind.ELEMENT)
        else:
            self._events.send((self._structure, self._ring))
            self._first_rows = tensors

    def _finish_first(self) -> None:
        """Do once what a restart may interrupt: divide the first element, and wait for an iteration to begin."""
        # forgotten before they are used: what is interrupted here is not to be done again after the restart
        rows, self._first_rows = self._first_rows, None
        if rows is not None:
            self._put_rows(rows)
        waits, self._waits_for_iteration = self._waits_for_iteration, False
        if waits:
            self._wait_for_continue()

    def _load_epoch(self) -> None:
        for element in self._epochs.elements:
            # before anything is written: what was loaded for an epoch that is given up must not reach the ring
            self._obey_commands()
            tensors = self._structure.take_tensors(element)
            if self._settings.rebatched_size is None:
                self._wait_for_free_slot()
                is_short = self._ring.write(self._slot, tensors)
                self._publish_slot(MessageKind.SHORT_ELEMENT if is_short else MessageKind.ELEMENT)
            else:
                self._put_rows(tensors)
        if self._num_rows and self._keeps_rest:
            self._ring.num_rows_mem[self._slot] = self._num_rows
            self._publish_slot(MessageKind.SHORT_ELEMENT)
        self._num_rows = 0
        # the marker takes a slot, so that a dataset without further elements does not run ahead for ever
        self._wait_for_free_slot()
        self._publish_slot(MessageKind.END_OF_EPOCH)

    def _put_rows(self, tensors: List[torch.Tensor]) -> None:
        """Continue filling the current slot with the rows of a batch, and further slots if there are more."""
        rows_per_slot = self._settings.rebatched_size or 1
        num_rows, taken = tensors[0].shape[0], 0
        while taken < num_rows:
            if self._num_rows == 0:
                self._wait_for_free_slot()
            count = min(num_rows - taken, rows_per_slot - self._num_rows)
            self._ring.write_rows(self._slot, tensors, source=taken, target=self._num_rows, count=count)
            taken += count
            self._num_rows += count
            if self._num_rows == rows_per_slot:
                self._num_rows = 0
                self._publish_slot(MessageKind.ELEMENT)

    def _publish_slot(self, kind: MessageKind) -> None:
        """Give the current slot to the program and go to the next one."""
        # before the message: the program may read the slot at once, and take the mark away
        self._ring.indices_mem[self._slot] = True
        self._slot = (self._slot + 1) % self._settings.buffer_size
        self._num_used += 1
        send(self._events, Message(kind, self._generation))

    def _wait_for_free_slot(self) -> None:
        self._obey_until(lambda: self._num_used < self._settings.buffer_size)

    def _wait_for_continue(self) -> None:
        self._obey_until(lambda: self._may_continue)
        self._may_continue = False

    def _obey_until(self, is_met: Callable[[], bool]) -> None:
        """Sleep until commands of the program have brought this about; stop if there is no program any more."""
        while not is_met():
            parent = parent_process()
            sentinels = [] if parent is None else [parent.sentinel]
            ready = wait([self._commands, *sentinels], timeout=_SECONDS_BETWEEN_LOOKS_AT_THE_PARENT)
            # Another process that the program forked may keep the sentinel open: then init is the parent of this one.
            is_orphan = os.getppid() == 1 and self._parent_pid != 1
            if is_orphan or (ready and self._commands not in ready):
                raise _RequestError(_STOP)
            self._obey_commands()

    def _obey_commands(self) -> None:
        while True:
            try:
                command = receive(self._commands)
            except EOFError:
                raise _RequestError(_STOP) from None
            if command is None:
                return
            if command.kind == MessageKind.RELEASE:
                self._num_used -= 1
            elif command.kind == MessageKind.CONTINUE:
                self._may_continue = True
            else:
                raise _RequestError(command)


class _Epochs:
    """Walks through a dataset again and again; an epoch begun in advance can be begun anew in the same order."""

    def __init__(self, dataset: torch.utils.data.Dataset, *, num_remembered: int) -> None:
        self._dataset = dataset
        # the random state at the beginning of so many epochs is kept
        self._num_remembered = num_remembered
        self._restores: Dict[int, List[Callable[[], Any]]] = {}
        self.number = 0
        self.elements: Iterator[Any] = iter(())

    def begin(self, number: int) -> None:
        """Begin the epoch of this number."""
        self._drop_iterator()
        for restore in self._restores.pop(number, ()):
            restore()
        self._restores[number] = _remember_order(self._dataset)
        self._restores.pop(number - self._num_remembered, None)
        self.number = number
        self.elements = iter(self._dataset)

    def close(self) -> None:
        """End the processes that load for the dataset."""
        self._drop_iterator()
        # persistent ones, which are the loader's own
        end_processes(find_running_iterator(self._dataset))

    def _drop_iterator(self) -> None:
        elements, self.elements = self.elements, iter(())
        if hasattr(elements, "close"):
            elements.close()
        if not getattr(self._dataset, "persistent_workers", False):
            end_processes(elements)


def _remember_order(dataset: torch.utils.data.Dataset) -> List[Callable[[], Any]]:
    """Return a function that restores all that decides the order of an epoch which is about to begin."""
    restores: List[Callable[[], Any]] = [partial(torch.set_rng_state, torch.get_rng_state())]
    if isinstance(dataset, torch.utils.data.DataLoader):
        # a loader draws from a generator of its own, and a share of a dataset from one that all processes agree on
        if isinstance(dataset.generator, torch.Generator):
            restores.append(partial(dataset.generator.set_state, dataset.generator.get_state()))
        if isinstance(dataset.dataset, _SubDataset):
            restores.append(partial(dataset.dataset.restore_order_state, dataset.dataset.read_order_state()))
    return restores
