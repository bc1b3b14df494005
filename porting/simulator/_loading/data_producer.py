"""The loading process's side of an `AsynchronousDataAccessor`: it walks through the dataset and fills the ring."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch
import torch.utils.data

from ..errors import createPoptorchError
from .data_messages import Command, CommandKind, Event, EventKind, receive_command, send
from .data_ring import DataRing, ElementStructure
from .sub_dataset import OrderState, _SubDataset

__all__ = ["DataProducer", "RingLayout"]

_SECONDS_BETWEEN_LOOKS_AT_THE_PARENT = 2.0


class RingLayout(NamedTuple):
    """What the program needs to read the elements."""

    structure: ElementStructure
    ring: DataRing


class _RestartRequestedError(Exception):
    """The program wants a new epoch before the current one ended."""

    def __init__(self, command: Command) -> None:
        super().__init__()
        self.command = command


class _StopRequestedError(Exception):
    """The program wants no more data, or is gone."""


class DataProducer:
    """Fills a ring with the elements of `dataset`, epoch after epoch, as far as the program has released its slots.

    `commands` must not block. With `rebatched_size` the rows of the elements are distributed to slots of that size.
    """

    def __init__(
        self,
        dataset: Any,
        commands: Connection,
        events: Connection,
        *,
        buffer_size: int,
        rebatched_size: Optional[int],
        early_preload: bool,
        load_indefinitely: bool,
    ) -> None:
        self._epochs = _Epochs(dataset, num_remembered=buffer_size + 2)
        self._commands, self._events = commands, events
        self._buffer_size, self._rebatched_size = buffer_size, rebatched_size
        self._waits_for_iteration, self._load_indefinitely = not early_preload, load_indefinitely
        self._keeps_rest = getattr(dataset, "rebatched_drop_last", True) is False
        self._generation = 0
        self._ring: Any = None
        self._slot, self._num_used, self._num_rows = 0, 0, 0
        self._first_rows: Optional[List[torch.Tensor]] = None
        self._may_continue = False
        self._parent_pid = os.getppid()

    def interrupt(self) -> bool:
        """Tell whether an interruption ends the loading: before the first element, or when the program wants it to.

        Otherwise it was meant for the program, which may go on to iterate.
        """
        if self._ring is None or self._ring.is_stopping_mem.item():
            return True
        self._ring.was_interrupted_mem.fill_(True)
        return False

    def run(self) -> None:
        """Load until the program says stop or is gone; what the dataset raises is passed on."""
        try:
            self._start()
            while True:
                restart: Optional[Command] = None
                try:
                    self._finish_start()
                    self._load_epoch()
                    if not self._load_indefinitely:
                        self._wait_for_continue()
                    self._epochs.begin_next()
                except _RestartRequestedError as request:
                    restart = request.command
                # not in the handler: the error holds the old iterator, whose processes end before new ones start
                if restart is not None:
                    self._restart(restart)
        except _StopRequestedError:
            pass
        finally:
            self._epochs.close()

    def _start(self) -> None:
        """Load the first element, which says how large the ring is, and tell the program."""
        self._epochs.begin_next()
        nothing = object()
        element = next(self._epochs.elements, nothing)
        if element is nothing:
            raise createPoptorchError("The Dataset is empty")
        self._structure = ElementStructure(element)
        tensors = self._structure.tensors_of(element)
        self._ring = DataRing(tensors, self._buffer_size, self._rebatched_size)
        layout = RingLayout(self._structure, self._ring)
        if self._rebatched_size is None:
            # in its slot before the program can look at the ring
            self._ring.write(0, tensors)
            self._ring.indices_mem[0] = True
            self._events.send(layout)
            self._publish(EventKind.ELEMENT)
        else:
            self._events.send(layout)
            self._first_rows = tensors

    def _finish_start(self) -> None:
        """Do once what a restart may interrupt: divide the first element, and wait for an iteration to begin."""
        rows, self._first_rows = self._first_rows, None
        if rows is not None and self._rebatched_size is not None:
            self._put_rows(rows, self._rebatched_size)
        waits, self._waits_for_iteration = self._waits_for_iteration, False
        if waits:
            self._wait_for_continue()

    def _load_epoch(self) -> None:
        for element in self._epochs.elements:
            self._obey_commands()
            tensors = self._structure.tensors_of(element)
            if self._rebatched_size is None:
                self._wait_for_free_slot()
                is_short = self._ring.write(self._slot, tensors)
                self._publish(EventKind.SHORT_ELEMENT if is_short else EventKind.ELEMENT)
            else:
                self._put_rows(tensors, self._rebatched_size)
        if self._num_rows and self._keeps_rest:
            self._ring.limit_rows(self._slot, self._num_rows)
            self._publish(EventKind.SHORT_ELEMENT)
        self._num_rows = 0
        # the marker takes a slot, so that a dataset without further elements does not run ahead for ever
        self._wait_for_free_slot()
        self._publish(EventKind.END_OF_EPOCH)

    def _put_rows(self, tensors: List[torch.Tensor], num_rows_per_slot: int) -> None:
        """Continue filling the current slot with the rows of a batch, and further slots if there are more."""
        num_rows, taken = tensors[0].shape[0], 0
        while taken < num_rows:
            if self._num_rows == 0:
                self._wait_for_free_slot()
            count = min(num_rows - taken, num_rows_per_slot - self._num_rows)
            self._ring.write_rows(self._slot, tensors, source=taken, target=self._num_rows, count=count)
            taken += count
            self._num_rows += count
            if self._num_rows == num_rows_per_slot:
                self._num_rows = 0
                self._publish(EventKind.ELEMENT)

    def _publish(self, kind: EventKind) -> None:
        """Hand the current slot to the program and go to the next one."""
        self._ring.indices_mem[self._slot] = True
        self._slot = (self._slot + 1) % self._buffer_size
        self._num_used += 1
        send(self._events, Event(kind, self._generation))

    def _restart(self, command: Command) -> None:
        self._generation = command.generation
        self._slot = self._num_used = self._num_rows = 0
        self._first_rows, self._may_continue, self._waits_for_iteration = None, False, False
        self._ring.indices_mem.zero_()
        self._epochs.begin(command.epoch)

    def _wait_for_free_slot(self) -> None:
        while self._num_used == self._buffer_size:
            self._wait_for_command()
            self._obey_commands()

    def _wait_for_continue(self) -> None:
        while not self._may_continue:
            self._wait_for_command()
            self._obey_commands()
        self._may_continue = False

    def _wait_for_command(self) -> None:
        """Sleep until the program says something; stop if there is none any more."""
        parent = parent_process()
        sentinels = [] if parent is None else [parent.sentinel]
        ready = wait([self._commands, *sentinels], timeout=_SECONDS_BETWEEN_LOOKS_AT_THE_PARENT)
        if (ready and self._commands not in ready) or self._is_orphan():
            raise _StopRequestedError

    def _is_orphan(self) -> bool:
        """Tell whether a program that forked this process is gone; another's fork may keep its sentinel open."""
        return os.getppid() == 1 and self._parent_pid != 1

    def _obey_commands(self) -> None:
        while True:
            try:
                command = receive_command(self._commands)
            except EOFError:
                raise _StopRequestedError from None
            if command is None:
                return
            if command.kind == CommandKind.RELEASE:
                self._num_used -= 1
            elif command.kind == CommandKind.CONTINUE:
                self._may_continue = True
            elif command.kind == CommandKind.RESTART:
                raise _RestartRequestedError(command)
            else:
                raise _StopRequestedError


class _Epochs:
    """Walks through a dataset again and again; an epoch that was begun in advance can be begun anew in the same order.

    `elements` are those left of the current epoch. The random state at the beginning of the latest `num_remembered`
    epochs is kept.
    """

    def __init__(self, dataset: Any, *, num_remembered: int) -> None:
        self._dataset = dataset
        self._num_remembered = num_remembered
        self._beginnings: Dict[int, _RandomState] = {}
        self._epoch = -1
        self.elements: Iterator[Any] = iter(())

    def begin_next(self) -> None:
        """Begin the epoch after the current one."""
        self.begin(self._epoch + 1)

    def begin(self, epoch: int) -> None:
        """Begin the epoch of this number, counted from 0."""
        self._drop_iterator()
        beginning = self._beginnings.get(epoch)
        if beginning is not None:
            beginning.restore(self._dataset)
        self._beginnings[epoch] = _RandomState.of(self._dataset)
        self._beginnings.pop(epoch - self._num_remembered, None)
        self._epoch = epoch
        self.elements = iter(self._dataset)

    def close(self) -> None:
        """End the processes that load for the dataset."""
        self._drop_iterator()
        if isinstance(self._dataset, torch.utils.data.DataLoader):
            _end_processes_of(self._dataset._iterator)

    def _drop_iterator(self) -> None:
        elements, self.elements = self.elements, iter(())
        if hasattr(elements, "close"):
            elements.close()
        if not getattr(self._dataset, "persistent_workers", False):
            _end_processes_of(elements)


def _end_processes_of(iterator: Any) -> None:
    """End the processes of a torch loader's iterator, to which a frame of a traceback may still refer."""
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()


class _RandomState(NamedTuple):
    """What decides the order of an epoch that is about to begin."""

    torch_state: torch.Tensor
    loader_state: Optional[torch.Tensor]
    order_state: Optional[OrderState]

    @classmethod
    def of(cls, dataset: Any) -> _RandomState:
        generator = _generator_of(dataset)
        share = _share_of(dataset)
        return cls(
            torch_state=torch.get_rng_state(),
            loader_state=None if generator is None else generator.get_state(),
            order_state=None if share is None else share.order_state(),
        )

    def restore(self, dataset: Any) -> None:
        generator, share = _generator_of(dataset), _share_of(dataset)
        torch.set_rng_state(self.torch_state)
        if generator is not None and self.loader_state is not None:
            generator.set_state(self.loader_state)
        if share is not None and self.order_state is not None:
            share.restore_order_state(self.order_state)


def _generator_of(dataset: Any) -> Optional[torch.Generator]:
    generator = dataset.generator if isinstance(dataset, torch.utils.data.DataLoader) else None
    return generator if isinstance(generator, torch.Generator) else None


def _share_of(dataset: Any) -> Optional[_SubDataset]:
    share = dataset.dataset if isinstance(dataset, torch.utils.data.DataLoader) else None
    return share if isinstance(share, _SubDataset) else None
