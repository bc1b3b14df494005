"""The process that loads data ahead of its program: started as a `SharingStrategy` says, and ended for certain."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import Any, Callable, Iterator, NamedTuple, Optional, Tuple

import torch
import torch.utils.data

from ... import structure
from .._logging import logger
from ..enums import SharingStrategy
from ..errors import createPoptorchError
from .data_messages import Command, CommandKind, Event, receive_event, send
from .data_producer import RingLayout
from .data_ring import DataRing, ElementStructure
from .loading_entry import LoadingJob, ParentStreams, load_data

__all__ = ["LoadingProcess", "RingSettings"]

_START_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}
_GUARD_ADVICE = (
    '. If the lines above speak of the "bootstrapping phase": the new process imports the program, so what the program '
    'does has to stand under `if __name__ == "__main__":`'
)
_SECONDS_TO_STOP = 10.0
_SECONDS_IN_A_HURRY = 0.5
_SECONDS_TO_BE_KILLED = 2.0
_SECONDS_BETWEEN_LOOKS_AT_THE_PROCESS = 0.5


class RingSettings(NamedTuple):
    """How far and in which portions a loading process loads ahead."""

    buffer_size: int
    rebatched_size: Optional[int]
    early_preload: bool
    load_indefinitely: bool


class LoadingProcess:
    """A running process that loads `dataset`, and the ring it fills.

    `structure` says how the tensors of a slot make an element. Raises `poptorch.Error` when the process ends before
    its first element; its own error is on the standard error stream.
    """

    def __init__(self, dataset: Any, settings: RingSettings, strategy: SharingStrategy) -> None:
        try:
            layout = self._launch(dataset, settings, strategy, in_file=strategy is SharingStrategy.FileSystem)
        except ValueError as error:
            # what the server that forks can pass on is limited, and each tensor of the dataset counts
            if "too many fds" not in str(error):
                raise
            layout = self._launch(dataset, settings, strategy, in_file=True)
        self.structure: ElementStructure = layout.structure
        self._data_buffers: DataRing = layout.ring
        os.set_blocking(self._events.fileno(), False)

    def _launch(self, dataset: Any, settings: RingSettings, strategy: SharingStrategy, *, in_file: bool) -> RingLayout:
        """Start the process and wait for its first element; leave nothing running if that fails."""
        context: Any = multiprocessing.get_context(_START_METHODS[strategy])
        commands, self._commands = context.Pipe(duplex=False)
        self._events, events = context.Pipe(duplex=False)
        try:
            with _dataset_file(dataset, in_file=in_file) as path:
                job = _job(None if path else dataset, path, settings, strategy)
                self._process = context.Process(target=load_data, args=(job, commands, events), daemon=False)
                _start(self._process, strategy)
                commands.close()
                events.close()
                return self._receive_layout()
        except BaseException as error:
            self.stop(in_a_hurry=isinstance(error, KeyboardInterrupt))
            for pipe in (commands, events):
                pipe.close()
            raise

    def _receive_layout(self) -> RingLayout:
        while not wait([self._events, self._process.sentinel], timeout=_SECONDS_BETWEEN_LOOKS_AT_THE_PROCESS):
            if not self._process.is_alive():
                break
        try:
            if self._events.poll():
                layout: RingLayout = self._events.recv()
                return layout
        except (EOFError, OSError):
            logger.debug("AsynchronousDataAccessor worker process ended while it described its data")
        raise createPoptorchError(
            "AsynchronousDataAccessor worker thread failed to start (Check above for details)"
            + ("" if self._process._start_method == "fork" else _GUARD_ADVICE)
        )

    def next_event(self) -> Event:
        """Wait until a slot is filled; AssertionError if the process ended and there is nothing left of it."""
        while True:
            try:
                event = receive_event(self._events)
                if event is not None:
                    return event
                if self._process.is_alive():
                    # the sentinel alone is not enough: the children of a process that was killed keep it open
                    wait([self._events, self._process.sentinel], timeout=_SECONDS_BETWEEN_LOOKS_AT_THE_PROCESS)
                    continue
                # it may have spoken between the two looks
                event = receive_event(self._events)
                if event is not None:
                    return event
            except EOFError:
                # it closed its pipe because it ends: how it ended is known in a moment
                self._process.join(_SECONDS_TO_STOP)
            raise AssertionError("An error occurred in the data fetcher")

    def next_event_of(self, generation: int) -> Event:
        """Wait for the next event since a restart, as `next_event` does; those before it are of no interest."""
        while True:
            event = self.next_event()
            if event.generation == generation:
                return event

    def command(self, kind: CommandKind, *, generation: int = 0, epoch: int = 0) -> None:
        """Ask for something; a process that ended cannot be asked, and `next_event` says so."""
        try:
            send(self._commands, Command(kind, generation, epoch))
        except (BrokenPipeError, OSError):
            logger.debug("AsynchronousDataAccessor worker process does not listen any more")

    def stop(self, *, in_a_hurry: bool = False) -> None:
        """End the process: ask it, wait 10 s, interrupt it, terminate it.

        In a hurry, or once the program was interrupted and the process with it, the wait is half a second.
        """
        process = getattr(self, "_process", None)
        ring: Optional[DataRing] = getattr(self, "_data_buffers", None)
        try:
            if process is not None and process.pid is not None:
                if ring is not None:
                    ring.is_stopping_mem.fill_(True)
                self.command(CommandKind.STOP)
                _end(process, lambda: in_a_hurry or (ring is not None and bool(ring.was_interrupted_mem)))
        finally:
            self._commands.close()
            self._events.close()


def _end(process: Any, is_in_a_hurry: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS_TO_STOP
    process.join(_SECONDS_IN_A_HURRY)
    while process.exitcode is None and time.monotonic() < end and not is_in_a_hurry():
        process.join(_SECONDS_IN_A_HURRY)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.exitcode is not None:
            return
        logger.debug("AsynchronousDataAccessor worker process %d gets %s", process.pid, number.name)
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            # the program itself waited for any of its processes
            return
        process.join(_SECONDS_TO_BE_KILLED)


def _job(dataset: Any, path: Optional[str], settings: RingSettings, strategy: SharingStrategy) -> LoadingJob:
    return LoadingJob(
        dataset=_without_running_iterator(dataset),
        dataset_path=path,
        buffer_size=settings.buffer_size,
        rebatched_size=settings.rebatched_size,
        early_preload=settings.early_preload,
        load_indefinitely=settings.load_indefinitely,
        log_level=logger.level,
        random_state=torch.get_rng_state(),
        parsers=_pickled_parsers(),
        # a server that forks has the streams of the moment at which it was started
        streams=ParentStreams() if strategy is SharingStrategy.ForkServer else None,
        start_method=multiprocessing.get_start_method(allow_none=True),
    )


def _without_running_iterator(dataset: Any) -> Any:
    """Copy a torch loader that loads already: its processes belong to this one."""
    if not isinstance(dataset, torch.utils.data.DataLoader):
        return dataset
    if dataset._iterator is None and getattr(dataset, "_accessor", None) is None:
        return dataset
    dataset = copy.copy(dataset)
    dataset._iterator = None
    return dataset


def _pickled_parsers() -> Tuple[bytes, ...]:
    """Pickle the registered parsers; one that cannot be pickled is registered by its module if at all."""
    pickled = []
    for pair in structure.registered_adapters():
        try:
            pickled.append(pickle.dumps(pair))
        except (pickle.PicklingError, AttributeError, TypeError):
            logger.debug("the parser of %s cannot be handed to a loading process", pair[0])
    return tuple(pickled)


@contextmanager
def _dataset_file(dataset: Any, *, in_file: bool) -> Iterator[Optional[str]]:
    """Give the path of a file with the pickled dataset while the process starts; None unless there is to be one."""
    if not in_file:
        yield None
        return
    descriptor, path = tempfile.mkstemp(prefix="poptorch-dataset-", suffix=".pickle")
    try:
        with open(descriptor, "wb") as file:
            pickle.dump(_without_running_iterator(dataset), file, protocol=pickle.HIGHEST_PROTOCOL)
        yield path
    finally:
        os.unlink(path)


def _start(process: Any, strategy: SharingStrategy) -> None:
    """Start a process; one that inherits this one's signal mask is not interrupted before it can deal with it."""
    if strategy is SharingStrategy.ForkServer:
        _preload_simulator()
        process.start()
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _preload_simulator() -> None:
    """Let the server that forks import torch once, not each process again; what the program chose to import stays."""
    server = forkserver._forkserver
    if getattr(server, "_preload_modules", None) == ["__main__"]:
        forkserver.set_forkserver_preload(["__main__", __package__])
