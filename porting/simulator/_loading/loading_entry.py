"""Entry point of a loading process: makes its streams, signals and random state those of a helper of its program."""

from __future__ import annotations

import faulthandler
import io
import multiprocessing
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from types import FrameType
from typing import Any, Callable, NamedTuple, Optional, Tuple

import torch

from ...structure import register_structure_adapter
from .._import_effects import has_descriptor
from .._logging import logger
from .data_producer import DataProducer, RingSettings

__all__ = ["LoadingJob", "ParentStreams", "load_data"]


class ParentStreams:
    """The program's standard output and error, for processes that do not inherit them."""

    def __init__(self, descriptors: Tuple[Any, ...] = ()) -> None:
        self._descriptors = descriptors

    def __reduce__(self) -> Tuple[Any, ...]:
        # looked at when the job is sent: the program may have redirected its streams since it was made
        return ParentStreams, (tuple(DupFd(number) if _is_open(number) else None for number in (1, 2)),)

    def take_over(self) -> None:
        """Let this process write where the program does."""
        for number, descriptor in zip((1, 2), self._descriptors):
            if descriptor is not None:
                received = descriptor.detach()
                os.dup2(received, number)
                os.close(received)


class LoadingJob(NamedTuple):
    """What a loading process needs to know.

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
    """Run the producer of `job` until it is told to stop; an interruption does not say a word."""
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
    # the crash report that the program asked for on SIGTERM is not wanted when it ends a process of its own
    faulthandler.unregister(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    report = sys.unraisablehook

    def report_others(unraisable: Any) -> None:
        # an interruption inside a destructor, of which Python would write a report, passes without a word
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
        register_structure_adapter(*pickle.loads(pickled))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
