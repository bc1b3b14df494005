"""Start the process that loads data ahead of its program, as a `SharingStrategy` asks, and make sure that it ends.

The accessor owns one `LoadingProcess`. In the process itself `load_data` is first: it makes streams, signals and random
state those of a program's helper.
"""

from __future__ import annotations

import copy
import faulthandler
import io
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from types import FrameType
from typing import Any, Callable, ContextManager, NamedTuple, Optional, Tuple

import torch
import torch.utils.data

from ... import structure
from ...torch_insides.loaders import find_running_iterator, forget_running_iterator
from .._import_effects import has_descriptor
from .._logging import logger
from ..enums import SharingStrategy
from ..errors import createPoptorchError
from .data_producer import DataProducer, RingSettings
from .data_ring import DataRing, ElementStructure, Message, MessageKind, receive, send

__all__ = ["LoadingJob", "LoadingProcess", "ParentStreams", "load_data"]

# Shared memory and files differ in how tensors of the dataset reach the process, not in how it starts.
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


class LoadingProcess:
    """A running process that loads `dataset`, and the ring it fills.

    `structure` says how the tensors of a slot make an element. Raises `poptorch.Error` when the process ends before
    its first element; its own error is on the standard error stream.
    """

    def __init__(self, dataset: torch.utils.data.Dataset, settings: RingSettings, strategy: SharingStrategy) -> None:
        self._process: Any = None
        # PopTorch's name, which programs read; there is none until the first element was loaded
        self._data_buffers: Any = None
        try:
            self._launch_process(dataset, settings, strategy, in_file=strategy is SharingStrategy.FileSystem)
        except ValueError as error:
            # what the server that forks can pass on is limited, and each tensor of the dataset counts
            if "too many fds" not in str(error):
                raise
            self._launch_process(dataset, settings, strategy, in_file=True)
        # from here on there are short messages only, and a look for one must not block
        os.set_blocking(self._events.fileno(), False)

    def _launch_process(
        self, dataset: Any, settings: RingSettings, strategy: SharingStrategy, *, in_file: bool
    ) -> None:
        """Start the process and wait for its first element; leave nothing running if that fails."""
        context: Any = multiprocessing.get_context(_START_METHODS[strategy])
        commands, self._commands = context.Pipe(duplex=False)
        self._events, events = context.Pipe(duplex=False)
        if isinstance(dataset, torch.utils.data.DataLoader):
            if find_running_iterator(dataset) is not None or getattr(dataset, "_accessor", None) is not None:
                # a loader that loads already: its processes belong to this one
                dataset = copy.copy(dataset)
                forget_running_iterator(dataset)
        place: ContextManager[Any] = nullcontext()
        if in_file:
            place = tempfile.NamedTemporaryFile(prefix="poptorch-dataset-", suffix=".pickle")
        try:
            with place as file:
                if file is not None:
                    pickle.dump(dataset, file, protocol=pickle.HIGHEST_PROTOCOL)
                    file.flush()
                job = LoadingJob(
                    dataset=None if in_file else dataset,
                    dataset_path=None if file is None else file.name,
                    settings=settings,
                    log_level=logger.level,
                    random_state=torch.get_rng_state(),
                    parsers=_pickle_parsers(),
                    # a server that forks has the streams of the moment at which it was started
                    streams=ParentStreams() if strategy is SharingStrategy.ForkServer else None,
                    start_method=multiprocessing.get_start_method(allow_none=True),
                )
                self._process = context.Process(target=load_data, args=(job, commands, events), daemon=False)
                _start(self._process, strategy)
                # only the other ends of the process itself keep the pipes open now, so that its end is noticed
                commands.close()
                events.close()
                self._receive_layout()
        except BaseException as error:
            self.stop(in_a_hurry=isinstance(error, KeyboardInterrupt))
            for pipe in (commands, events):
                pipe.close()
            raise

    def _receive_layout(self) -> None:
        while not wait([self._events, self._process.sentinel], timeout=_SECONDS_BETWEEN_LOOKS_AT_THE_PROCESS):
            if not self._process.is_alive():
                break
        try:
            if self._events.poll():
                layout: Tuple[ElementStructure, DataRing] = self._events.recv()
                self.structure, self._data_buffers = layout
                return
        except (EOFError, OSError):
            logger.debug("AsynchronousDataAccessor worker process ended while it described its data")
        raise createPoptorchError(
            "AsynchronousDataAccessor worker thread failed to start (Check above for details)"
            + ("" if self._process._start_method == "fork" else _GUARD_ADVICE)
        )

    def wait_for_event(self, generation: int) -> Message:
        """Wait for a slot that is filled after this restart; AssertionError if the process ended and left none."""
        is_alive = True
        while True:
            try:
                event = receive(self._events)
            except EOFError:
                # it closed its pipe because it ends: how it ended is known in a moment
                self._process.join(_SECONDS_TO_STOP)
                event, is_alive = None, False
            if event is not None:
                if event.generation == generation:
                    return event
            elif not is_alive:
                raise AssertionError("An error occurred in the data fetcher")
            elif self._process.is_alive():
                # the sentinel alone is not enough: the children of a process that was killed keep it open
                wait([self._events, self._process.sentinel], timeout=_SECONDS_BETWEEN_LOOKS_AT_THE_PROCESS)
            else:
                # it may have spoken between the two looks, so there is one more
                is_alive = False

    def read(self, slot: int, *, is_short: bool) -> Any:
        """Return the element in a slot, in its memory."""
        return self.structure.make_element(self._data_buffers.read(slot, is_short=is_short))

    def release(self, slot: int) -> None:
        """Release a slot, so that the process fills it again."""
        self._data_buffers.indices_mem[slot] = False
        self.command(MessageKind.RELEASE)

    def command(self, kind: MessageKind, *, generation: int = 0, epoch: int = 0) -> None:
        """Send a command; for a process that has ended, `wait_for_event` raises the error."""
        try:
            send(self._commands, Message(kind, generation, epoch))
        except (BrokenPipeError, OSError):
            logger.debug("AsynchronousDataAccessor worker process does not listen any more")

    def stop(self, *, in_a_hurry: bool = False) -> None:
        """End the process: send a message, wait 10 s (half a second if interrupted), interrupt it, terminate it."""
        try:
            if self._process is not None and self._process.pid is not None:
                if self._data_buffers is not None:
                    self._data_buffers.is_stopping_mem.fill_(True)
                self.command(MessageKind.STOP)
                self._end_process(in_a_hurry=in_a_hurry)
        finally:
            self._commands.close()
            self._events.close()

    def _end_process(self, *, in_a_hurry: bool) -> None:
        process, ring = self._process, self._data_buffers
        end = time.monotonic() + _SECONDS_TO_STOP
        process.join(_SECONDS_IN_A_HURRY)
        while process.exitcode is None and time.monotonic() < end:
            if in_a_hurry or (ring is not None and ring.was_interrupted_mem) or not _is_there(process.pid):
                break
            process.join(_SECONDS_IN_A_HURRY)
        # an interruption lets the dataset clean up; the last signal cannot be ignored
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


def _is_there(process_id: int) -> bool:
    """Tell whether there is such a process; one that the program itself waited for has no exit code."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def _pickle_parsers() -> Tuple[bytes, ...]:
    """Pickle the registered parsers; one that cannot be pickled is registered by its module if at all."""
    pickled = []
    for pair in structure.registered_adapters():
        try:
            pickled.append(pickle.dumps(pair))
        except (pickle.PicklingError, AttributeError, TypeError):
            logger.debug("the parser of %s cannot be handed to a loading process", pair[0])
    return tuple(pickled)


def _start(process: BaseProcess, strategy: SharingStrategy) -> None:
    """Start a process; one that inherits this one's signal mask is not interrupted before it can deal with it."""
    if strategy is SharingStrategy.ForkServer:
        # the server imports torch once, not each process again; what the program chose to import stays
        if getattr(forkserver._forkserver, "_preload_modules", None) == ["__main__"]:
            forkserver.set_forkserver_preload(["__main__", __package__])
        process.start()
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class ParentStreams:
    """The program's standard output and error, for processes that do not inherit them."""

    def __init__(self, descriptors: Tuple[Any, ...] = ()) -> None:
        self._descriptors = descriptors

    def __reduce__(self) -> Tuple[Any, ...]:
        # read when the job is sent: the program may have redirected its streams since it was made
        return ParentStreams, (tuple(DupFd(number) if _is_open(number) else None for number in (1, 2)),)

    def take_over(self) -> None:
        """Let this process write where the program does."""
        for number, descriptor in zip((1, 2), self._descriptors):
            if descriptor is not None:
                received = descriptor.detach()
                os.dup2(received, number)
                os.close(received)


class LoadingJob(NamedTuple):
    """The data that a loading process is started with.

    `dataset` is None where `dataset_path` names a file with it. `parsers` are pickled pairs of a type and its parser.
    `start_method` is how processes start that load for this one, None for Python's default.
    """

    dataset: Any
    dataset_path: Optional[str]
    settings: RingSettings
    log_level: int
    random_state: torch.Tensor
    parsers: Tuple[bytes, ...]
    streams: Optional[ParentStreams]
    start_method: Optional[str]


def load_data(job: LoadingJob, commands: Connection, events: Connection) -> None:
    """Run the producer of `job` until it is stopped; an interruption prints nothing."""
    process_id = os.getpid()
    producer: Optional[DataProducer] = None

    def interrupt(_number: int, _frame: Optional[FrameType]) -> None:
        # the processes that load for this one inherit the handler; they end with it
        if os.getpid() == process_id and (producer is None or producer.interrupt()):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt

    try:
        _settle_process(job, interrupt)
        logger.debug("AsynchronousDataAccessor worker process: %d", process_id)
        os.set_blocking(commands.fileno(), False)
        dataset = job.dataset
        if job.dataset_path is not None:
            with open(job.dataset_path, "rb") as file:
                dataset = pickle.load(file)
        producer = DataProducer(dataset, job.settings, commands, events)
        producer.run()
    except KeyboardInterrupt:
        logger.debug("AsynchronousDataAccessor worker process was interrupted")
    except BrokenPipeError:
        logger.debug("AsynchronousDataAccessor worker process lost its program")
    finally:
        # the interpreter, which ends now, would report one more interruption with a traceback
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _settle_process(job: LoadingJob, interrupt: Callable[[int, Optional[FrameType]], None]) -> None:
    if job.streams is not None:
        job.streams.take_over()
    # standard streams that are objects of a test runner or notebook lead nowhere in a forked process
    for name, number in (("stdout", 1), ("stderr", 2)):
        if _is_open(number) and not has_descriptor(getattr(sys, name)):
            stream = io.TextIOWrapper(open(number, "wb", buffering=0, closefd=False), write_through=True)
            setattr(sys, name, stream)
    # the crash report that the program switched on for SIGTERM is not wanted when it ends its own process
    faulthandler.unregister(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    report = sys.unraisablehook

    def report_others(unraisable: sys.UnraisableHookArgs) -> None:
        # an interruption inside a destructor, of which Python would write a report, passes silently
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)

    sys.unraisablehook = report_others
    signal.signal(signal.SIGINT, interrupt)
    # the program blocked it while this process started; from here on there is a handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    logger.setLevel(job.log_level)
    multiprocessing.set_start_method(job.start_method, force=True)
    # threads of the program's kernels do not exist in a forked process, and more processes load at the same time
    torch.set_num_threads(1)
    torch.set_rng_state(job.random_state)
    for pickled in job.parsers:
        structure.register_structure_adapter(*pickle.loads(pickled))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
