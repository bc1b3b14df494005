"""One executor of a ported model: made when it is first needed, timed, and with failures explained."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import time
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Iterator, Mapping, NoReturn, Optional, Sequence, Set

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..adapters.stages import mark_stages
from ..diagnostics import BatchError, DeviceError, caller_place, find_assignment
from ..module_attributes import attributes_kept
from .attribute_watch import AttributeWatch, reads_noted
from .batch_signature import BatchSignature
from .device_turns import DeviceTurns
from .failures import explain_failure, find_foreign_device, refuse_loss_without_gradient
from .finite_values import note_outputs
from .frozen_checks import named_modules_of, say_changed_attributes, say_frozen_values, watch_of
from .gradient_hooks import refuse_hooks
from .gradient_reads import watch_gradient_reads
from .host_writes import HostWrites
from .late_changes import LateChanges
from .memory_check import check_memory
from .parts import Parts
from .placements import check_placement
from .run_report import VENDORS_ENGINE, ExecutorRecord
from .value_ranges import refuse_lost_values
from .wrappers import refuse_data_parallel

__all__ = ["ExecutorHandle", "destroy_unseen"]

logger = logging.getLogger("porting")

# a call that takes longer makes people wonder; the report has the seconds in any case
_LONG_SECONDS = 2.0

Make = Callable[[Parts, Sequence[Any], Mapping[str, Any]], Any]


class ExecutorHandle:
    """Keeps an executor of the backend together with its record and the batch that it was compiled for.

    `make` builds the executor, given the parts of the port and the arguments of the first call; `compiling` makes a
    context that is entered while it compiles. `owner` is how the user gets at what this handle runs, for messages. The
    handle does not know the ported model, so that dropping that one ends both.
    """

    def __init__(
        self,
        name: str,
        parts: Parts,
        make: Make,
        *,
        compiling: Callable[[Parts], ContextManager[Any]],
        trains: bool,
        owner: str,
    ) -> None:
        """Remember how to make the executor; nothing is built yet."""
        self.record = ExecutorRecord(name)
        self.executor: Any = None
        self.turns = DeviceTurns(self, parts.wrapped, trains=trains)
        self._parts = parts
        self._make = make
        self._compiling = compiling
        self._owner = owner
        self._was_destroyed = False
        self._signature: Optional[BatchSignature] = None
        self._host_writes: Optional[HostWrites] = None
        self._late_changes: Optional[LateChanges] = None
        self._has_run = False
        self._watch: Optional[AttributeWatch] = None

    def has_executable(self) -> bool:
        """Tell whether it is compiled."""
        return self.executor is not None

    @property
    def is_attached(self) -> bool:
        """Whether the executable holds a device."""
        return self.executor is not None and bool(self.executor.isAttachedToDevice())

    def compile(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
        """Compile for this batch and return the seconds it took; 0.0 when there is an executable already.

        Raises BatchError when the batch does not fit the executable that there is, or cannot be cut as the options
        ask, and CaptureError when the device could not run the model. Nothing is left behind then: the model is as
        plain as before.
        """
        if self.executor is not None:
            self._refuse_other_batch(args, kwargs)
            return 0.0
        if self.turns.trains:
            refuse_hooks(self._parts)
        self.turns.meet()
        self._parts.unsaid.clear()
        files = self._cache_files()
        start = time.perf_counter()
        executor: Any = None
        try:
            modules = named_modules_of(self._parts)
            with self._compilation() as begun, reads_noted(modules) as reads:
                executor = self._make(self._parts, args, kwargs)
                executor.compile(*args, **kwargs)
                check_placement(self._parts, executor, begun)
                if self.turns.trains:
                    refuse_loss_without_gradient(executor)
                    refuse_hooks(self._parts)  # those that `forward` has registered
                    check_memory(self._parts, executor)
        except BaseException as error:
            self._abandon(executor)
            if isinstance(error, Exception):
                self._raise_explained(error, args, kwargs)
            raise
        seconds = time.perf_counter() - start
        self._signature = BatchSignature(args, kwargs)
        self.record.note_compilation(seconds, samples_per_call=self._signature.rows, cache=self._cache_result(files))
        self._take_over(executor)
        self._parts.say_unsaid()
        self._watch = watch_of(self._parts, modules, reads)
        if self.record.num_compilations == 1:
            with self._compilation():
                say_frozen_values(self._parts, executor, compile_seconds=seconds)
        return seconds

    def _take_over(self, executor: Any) -> None:
        """Run `executor` from now on, and watch what the user does to its model on the host."""
        self.executor, self._has_run = executor, False
        if self.turns.trains:
            self._late_changes = LateChanges(self._parts)
            watch_gradient_reads(self._parts)
        self._host_writes = HostWrites(self._parts.wrapped)
        self._host_writes.ignore_fetches(executor)
        self._host_writes.note()
        self.turns.join()
        if self.record.name in self._parts.random_states:
            # a checkpoint was loaded before there was an executor
            executor.rng_state = self._parts.random_states.pop(self.record.name)
        self._note_engine()

    @contextmanager
    def _compilation(self) -> Iterator[Sequence[str]]:
        """Surround a compilation; the value names the stages that the trace has begun, in their order."""
        parts = self._parts
        with torch.inference_mode(False), self._compiling(parts), _attributes_kept(parts):
            with mark_stages(parts.model, parts.options, backend=parts.backend.module) as begun:
                yield begun

    def _note_engine(self) -> None:
        """Take note of what runs the calls."""
        if not self._parts.backend.is_simulator:
            self.record.engine = VENDORS_ENGINE
            return
        compiled = getattr(self.executor, "_compiled", None)
        if compiled is not None:
            self.record.note_engine(compiled.obtained)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one device call; the first one compiles, and says what that cost."""
        refuse_data_parallel()
        if torch.is_inference_mode_enabled():
            # what a device keeps between calls must not be tensors of that mode
            with torch.inference_mode(False):
                return self.run(args, kwargs)
        refuse_lost_values(args, kwargs)
        if self._watch is not None:
            say_changed_attributes(self._parts, self._watch)
        executor, record = self.executor, self.record
        if executor is None:
            self._say_it_took_long(self.compile(args, kwargs))
            executor = self.executor
        self.turns.take()
        writes = self._host_writes
        if writes is not None and writes.are_new() and executor.isAttachedToDevice():
            executor.copyWeightsToDevice()
        if self._late_changes is not None:
            self._late_changes.look()
        start = time.perf_counter()
        try:
            result = executor(*args, **kwargs)
        except Exception as error:
            if not self._has_run:
                # a batch that the device cannot run must not be the one that all others have to be like
                self.destroy()
            self._raise_explained(error, args, kwargs)
        self._has_run = True
        record.note_call(time.perf_counter() - start)
        self.turns.finish()
        if not self.turns.trains:
            note_outputs(result, record, self._parts)
        if writes is not None:
            writes.note()
        return result

    def _say_it_took_long(self, seconds: float) -> None:
        if seconds >= _LONG_SECONDS:
            logger.warning(
                "the %s graph was %s in %.2f s within its first call (`%s.compile(*batch)` does it beforehand)",
                self.record.name,
                "loaded from the cache" if self.record.cache == "hit" else "compiled",
                seconds,
                self._owner,
            )

    def say_late_changes(self) -> None:
        """Say (D005) what has changed since the step was compiled, if it is."""
        if self._late_changes is not None and self.executor is not None:
            self._late_changes.say()

    def attach(self) -> None:
        """Take the device; DeviceError D004 or D007 when there is no executable to put on it."""
        if self.executor is None:
            raise DeviceError.of(
                "D007" if self._was_destroyed else "D004",
                message=f"the {self.record.name} graph is not compiled, so there is nothing to put on the device",
                place=caller_place(),
                help=f"compile first: `{self._owner}.compile(*batch)`",
            )
        self.turns.take()
        if not self.is_attached:
            self.executor.attachToDevice()

    def detach(self) -> None:
        """Give the device free if the executor holds it; weights and optimizer state come to the host."""
        if self.is_attached:
            self.executor.detachFromDevice()

    def destroy(self) -> None:
        """Drop the executable, after fetching what it has learnt; the next call makes another."""
        executor, self.executor, self._signature = self.executor, None, None
        if executor is not None:
            self._was_destroyed = True
            try:
                executor.destroy()
            except Exception as error:
                # PopTorch takes the model's wrapper off last, and one that has let go of the model has none
                if not (self.turns.has_let_go and "model was never wrapped" in str(error)):
                    raise
            self.turns.leave()

    def unwrap(self) -> None:
        """Give the model and its tensors the classes back that they had before a training executor took them over.

        A backend without the vendor's private module does not take them over.
        """
        name = f"{self._parts.backend.module.__name__}._impl"
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name).unwrapModelIfNecessary(self._parts.wrapped)

    def _abandon(self, executor: Any) -> None:
        """Let go of an executor that failed to compile, and of its hold on the model.

        `destroy()` does that for compiled ones only, and those for inference have no hold on it.
        """
        if executor is not None:
            executor.destroy()
        if self.turns.trains:
            self.unwrap()

    def _refuse_other_batch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        assert self._signature is not None
        finding = find_foreign_device(args, kwargs)
        finding = finding or self._signature.difference(BatchSignature(args, kwargs), remedy=self._remedy)
        if finding is not None:
            raise BatchError(finding)

    def _raise_explained(self, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
        explained = explain_failure(error, self._signature, args, kwargs, remedy=self._remedy, model=self._parts.model)
        if explained is None:
            raise error
        # an error that carries the same finding would print it a second time
        raise explained from (None if getattr(error, "finding", None) is explained.finding else error)

    @property
    def _remedy(self) -> str:
        return f"to compile for batches like this one instead: `{self._owner}.destroy()`, then call again"

    def _cache_files(self) -> Set[str]:
        folder = self._parts.options.cache_dir
        return set(os.listdir(folder)) if folder is not None and os.path.isdir(folder) else set()

    def _cache_result(self, before: Set[str]) -> str:
        """Tell from the cache directory what the vendor's compiler did."""
        if self._parts.options.cache_dir is None:
            return "off"
        return "hit" if before and self._cache_files() == before else "miss"


def destroy_unseen(handles: Sequence[ExecutorHandle]) -> None:
    """End the executors of a ported model that nobody keeps.

    The garbage collector may do so at any moment: while another model is captured, or inside of a user's modes.
    """
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        for handle in handles:
            handle.destroy()


def _attributes_kept(parts: Parts) -> ContextManager[None]:
    """Keep a device's tensors out of the modules' attributes; the simulator does so where it captures."""
    if parts.backend.is_simulator:
        return nullcontext()
    return attributes_kept(
        parts.model,
        is_device_tensor=lambda tensor: tensor.device.type == "ipu",
        place_of=lambda module, name, _tensor: find_assignment(type(module), name),
        report=parts.unsaid.append,
    )
