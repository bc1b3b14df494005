"""One executor of a ported model: made when it is first needed, timed, and with failures explained."""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from typing import Any, Callable, ContextManager, Iterator, Mapping, Optional, Sequence, Set

from ..diagnostics import BatchError
from .batch_errors import BatchSignature, explain_failure, foreign_device, rows_of
from .run_report import ExecutorRecord

__all__ = ["ExecutorHandle"]

logger = logging.getLogger("porting")


class ExecutorHandle:
    """Keeps an executor of the backend together with its record and the batch that it was compiled for.

    `make` builds the executor, given the arguments of the first call; `compiling` makes a context that is entered
    while it compiles.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Sequence[Any], Mapping[str, Any]], Any],
        *,
        cache_dir: Optional[str],
        keeps_executables: bool,
        compiling: Callable[[], ContextManager[Any]],
    ) -> None:
        """Remember how to make the executor; nothing is built yet."""
        self.record = ExecutorRecord(name)
        self.executor: Any = None
        self._make = make
        self._cache_dir = cache_dir
        self._keeps_executables = keeps_executables
        self._compiling = compiling
        self._signature: Optional[BatchSignature] = None

    @property
    def is_compiled(self) -> bool:
        """Whether there is an executable."""
        return self.executor is not None and bool(self.executor.isCompiled())

    @property
    def is_attached(self) -> bool:
        """Whether the executable holds a device."""
        return self.executor is not None and bool(self.executor.isAttachedToDevice())

    def compile(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
        """Compile for this batch and return the seconds it took; 0.0 when there is an executable already.

        Raises BatchError when the batch does not fit the executable that there is, or cannot be cut as the options
        ask, and CaptureError when the device could not run the model. Nothing is left behind then.
        """
        if self.is_compiled:
            self._refuse_other_batch(args, kwargs)
            return 0.0
        files = self._cache_files()
        start = time.perf_counter()
        try:
            with self._explained(args, kwargs), self._compiling():
                self.executor = self._make(args, kwargs)
                self.executor.compile(*args, **kwargs)
        except BaseException:
            self._abandon()
            raise
        seconds = time.perf_counter() - start
        self._signature = BatchSignature(args, kwargs)
        self.record.num_compilations += 1
        self.record.compile_seconds = seconds
        self.record.compiled_at = time.time()
        self.record.cache = self._cache_result(files)
        return seconds

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one device call; the first one compiles, and says so."""
        if not self.is_compiled:
            seconds = self.compile(args, kwargs)
            logger.info("the %s graph was compiled in %.2f s at its first call", self.record.name, seconds)
        start = time.perf_counter()
        try:
            result = self.executor(*args, **kwargs)
        except Exception as error:
            explained = self._explain(error, args, kwargs)
            if explained is None:
                raise
            raise explained from error
        self.record.call_seconds += time.perf_counter() - start
        self.record.num_calls += 1
        self.record.num_samples += rows_of(args, kwargs)
        return result

    def detach(self) -> None:
        """Give the device free if the executor holds it."""
        if self.is_attached:
            self.executor.detachFromDevice()

    def attach(self) -> None:
        """Take the device if the executor is compiled and does not hold it."""
        if self.is_compiled and not self.is_attached:
            self.executor.attachToDevice()

    def destroy(self) -> None:
        """Drop the executable; the next call makes another."""
        if self.executor is not None:
            self.executor.destroy()
        self.executor = None
        self._signature = None

    def _abandon(self) -> None:
        """Let go of an executor that failed to compile, and of its hold on the model."""
        executor, self.executor = self.executor, None
        if executor is None:
            return
        model = executor.model
        executor.destroy()
        release = getattr(type(model), "_poptorch_original_class", None)
        if release is not None:
            executor.release()

    def _refuse_other_batch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        difference = self._signature.difference(BatchSignature(args, kwargs)) if self._signature else None
        if difference is not None:
                raise BatchError(difference)

    @contextmanager
    def _explained(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            explained = self._explain(error, args, kwargs)
            if explained is None:
                raise
            raise explained from error

    def _explain(self, error: BaseException, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        foreign = foreign_device(args, kwargs)
        return BatchError(foreign) if foreign is not None else explain_failure(error, self._signature, args, kwargs)

    def _cache_files(self) -> Set[str]:
        if self._cache_dir is None or not os.path.isdir(self._cache_dir):
            return set()
        return set(os.listdir(self._cache_dir))

    def _cache_result(self, before: Set[str]) -> str:
        """Tell from the cache directory what happened; a backend that keeps no executables can only miss."""
        if self._cache_dir is None:
            return "off"
        return "hit" if self._keeps_executables and before and self._cache_files() == before else "miss"
