"""Run one executor of a ported model: compile it, give it the device, time its calls and explain its failures.

Ported models and host loops call runners.
"""

from __future__ import annotations

import sys
import time
import weakref
from contextlib import nullcontext
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, MutableSet, NoReturn, Optional, Sequence

import torch
from torch import nn

from ..adapters.backend_protocol import Executor
from ..adapters.batch_counts import BatchCounts
from ..adapters.replica_buffers import give_replica_buffers, keep_replica_buffers, send_optimizer
from ..diagnostics import BatchError, DeviceError, Finding
from ..host_tensors import HostTensor, host_tensors
from ..structure import flatten_tensors
from ..support.garbage_pause import garbage_pause
from .batch import BatchSignature, find_foreign_device, refuse_lost_values, refuse_parallel_call
from .call_notes import note_outputs, say_it_took_long
from .compilation import (
    check_memory,
    collect_cache_files,
    compilation,
    compile_checked,
    destroy_left,
    make_executor,
    unwrap_model,
)
from .compiled_in import CompiledIn, HostWrites
from .failures import explain_failure, refuse_loss_without_gradient
from .frozen_checks import say_frozen_values
from .gradients import refuse_hooks, watch_gradient_reads
from .nan_search import KeptCall, keep_call, refuse_not_finite
from .optimizer import PortOptimizer
from .port import Port, PortFindings, list_written_state
from .run_report import ExecutorRecord

__all__ = ["Runner"]


class Runner:
    """Keeps an executor of the backend together with its record and the batch that it was compiled for.

    The executor is made by the first call, gets the device for each call, is timed, and has its failures explained.
    It trains if there is an `optimizer`, and otherwise runs in eval mode unless it `keeps_modes`. `owner` is how the
    user gets at what it runs, for messages. `random_states` are random streams for executors that are not made yet, by
    name; a runner takes its own out. The runner does not know the ported model, so that dropping that one ends both.

    Each executable has its own copy of the weights on its device. Executors that share weights take turns there, and
    hand the weights over through the host: the training step, inference and evaluation of one ported model, and those
    of two models with modules in common, as the two halves of a GAN.
    """

    def __init__(
        self,
        name: str,
        port: Port,
        findings: PortFindings,
        *,
        optimizer: Optional[PortOptimizer] = None,
        owner: str,
        random_states: Dict[str, List[int]],
        keeps_modes: bool = False,
        has_own_weights: bool = False,
    ) -> None:
        """Remember how to make the executor; nothing is built yet."""
        self.record = ExecutorRecord(name)
        self.executor: Any = None
        self.trains = optimizer is not None
        self._port, self._findings = port, findings
        self._optimizer = optimizer
        self._owner = owner
        self._random_states = random_states
        self._was_destroyed = False
        self.signature: Optional[BatchSignature] = None
        self._has_run = False
        self._weight_bytes = self._batch_bytes = self._result_bytes = 0
        self._compiled_in: Optional[CompiledIn] = None
        self._host_writes = HostWrites(nn.Module(), trains=self.trains)
        self._tensors: FrozenSet[int] = frozenset()
        # weakly: runners that share weights must not keep each other's models alive
        self._others: List[weakref.ref[Runner]] = []
        self._has_let_go = False
        self._has_own_weights = has_own_weights
        self._session: Any = None
        self._keeps_modes = keeps_modes or self.trains
        self._counts: BatchCounts
        self.written_state: List[HostTensor] = []  # without a step of an optimizer: statistics, counters, averages
        self._runs_per_call = port.options.device_iterations * (port.options.accumulation if self.trains else 1)

    def has_executable(self) -> bool:
        """Tell whether it is compiled."""
        return self.executor is not None

    def accepts(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether it is compiled for batches like this one."""
        return self.executor is not None and self.describe_difference(args, kwargs) is None

    def describe_difference(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[Finding]:
        """Return what is different about this batch (B001-B003), or None."""
        assert self.signature is not None
        return self.signature.difference(BatchSignature(args, kwargs), remedy=self._remedy)

    @property
    def is_attached(self) -> bool:
        """Whether the executable holds a device."""
        return self.executor is not None and bool(self.executor.isAttachedToDevice())

    # -- compiling -----------------------------------------------------------------------------------------------------

    def compile(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, waits: bool = True) -> float:
        """Compile for this batch and return the seconds it took; 0.0 when there is an executable already.

        Unless it `waits`, the simulator's engines are measured later, beside the training. Raises BatchError when the
        batch does not fit the executable that there is, or cannot be cut as the options ask, and CaptureError when the
        device could not run the model. Nothing is left behind then: the model is as plain as before.
        """
        if self.executor is not None:
            finding = find_foreign_device(args, kwargs) or self.describe_difference(args, kwargs)
            if finding is not None:
                raise BatchError(finding)
            return 0.0
        destroy_left()
        # measuring takes minutes, which is too long without the collector
        with nullcontext() if waits else garbage_pause():
            return self._compile_first(args, kwargs, waits)

    def _compile_first(self, args: Sequence[Any], kwargs: Mapping[str, Any], waits: bool) -> float:
        """Compile where there is no executable, and say what was found."""
        if self.trains:
            refuse_hooks(self._port)
        self._meet_others()
        self._findings.begin_compilation()
        files = collect_cache_files(self._port.options)
        start = time.perf_counter()
        compiled_in = CompiledIn(self._port, self._findings, trains=self.trains, keeps_modes=self._keeps_modes)
        executor = self._make_compiled(compiled_in, args, kwargs, waits)
        seconds = time.perf_counter() - start
        self.signature = BatchSignature(args, kwargs)
        self._batch_bytes = _count_bytes(flatten_tensors((args, kwargs)))
        # the files of the cache tell what the vendor's compiler did
        cache = "hit" if files and collect_cache_files(self._port.options) == files else "miss"
        cache = "off" if self._port.options.cache_dir is None else cache
        self.record.note_compilation(seconds, samples_per_call=self.signature.rows, cache=cache)
        self._take_over(executor)
        self._findings.say_deferred()
        self._compiled_in = compiled_in.take(self._port.backend.compiled_step(executor))
        with compilation(self._port, self._findings, keeps_modes=self._keeps_modes):
            is_new = self.record.num_compilations == 1
            say_frozen_values(self._port, self._findings, executor, compile_seconds=seconds, is_new=is_new)
        return seconds

    def _make_compiled(
        self, compiled_in: CompiledIn, args: Sequence[Any], kwargs: Mapping[str, Any], waits: bool
    ) -> Any:
        """Return a compiled executor; `compiled_in` notes what its `forward` reads."""
        port, findings = self._port, self._findings
        executor: Any = None
        try:
            with compilation(port, findings, keeps_modes=self._keeps_modes) as begun, compiled_in.note_reads():
                executor = make_executor(port, findings, self._optimizer, args, kwargs)
                if not waits:
                    port.backend.start_at_once(executor)
                compile_checked(port, executor, args, kwargs, begun=begun)
                if self._optimizer is not None:
                    refuse_loss_without_gradient(port, executor)
                    refuse_hooks(port)  # those that `forward` has registered
                check_memory(port, findings, self._optimizer, executor)
        except BaseException as error:
            # `destroy()` frees the model of compiled executors only, and those for inference have no hold on it
            if executor is not None:
                executor.destroy()
            if self.trains:
                unwrap_model(self._port)
            if isinstance(error, Exception):
                self._raise_explained(error, args, kwargs)
            raise
        return executor

    def _take_over(self, executor: Executor) -> None:
        """Run `executor` from now on, and watch what the user does to its weights on the host."""
        self.executor, self._has_run = executor, False
        self._weight_bytes = _count_bytes([host.tensor for host in host_tensors(self._port.wrapped)])
        if self.trains:
            watch_gradient_reads(self._port)
        self._host_writes = HostWrites(
            self._port.wrapped, trains=self.trains, follows_aliases=not self._has_own_weights
        )
        step = self._port.backend.compiled_step(executor)
        self._counts = BatchCounts(self._port.wrapped, None if step is None else step.graph)
        self.written_state = [] if self.trains else list_written_state(self._port, step, keeps_modes=self._keeps_modes)
        self._host_writes.note_fetches(executor, self._counts)
        for other in self._iter_sharing():
            other._others.append(weakref.ref(self))
        _COMPILED.add(self)
        if self.record.name in self._random_states:
            # a checkpoint was loaded before there was an executor
            executor.rng_state = self._random_states.pop(self.record.name)
        self._session = None if step is None else executor.device_session
        self.record.note_engine(None if step is None else step.obtained)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one device call; the first one compiles, and says what that cost."""
        # the caller of `__call__`, which comes here itself or through `forward`
        refuse_parallel_call(sys._getframe(2))
        if torch.is_inference_mode_enabled():
            # what a device keeps between calls must not be tensors of that mode
            with torch.inference_mode(False):
                return self.run(args, kwargs)
        refuse_lost_values(args, kwargs)
        if self.executor is None:
            seconds = self.compile(args, kwargs, waits=False)
            say_it_took_long(self.record, seconds, self._owner)
        executor = self.executor
        if self._compiled_in is not None:
            self._compiled_in.look()
        kept = self.keep_call(args, kwargs) if self._port.options.debug_nan else None
        try:
            self._bring_up_to_date(executor)
            start = time.perf_counter()
            result = executor(*args, **kwargs)
        except Exception as error:
            if not self._has_run:
                # a batch that the device cannot run must not be the one that all others have to be like
                self.destroy()
            self._raise_explained(error, args, kwargs)
        seconds = time.perf_counter() - start
        if kept is not None:
            refuse_not_finite(self._port, executor, kept, result, args=args, kwargs=kwargs, trains=self.trains)
        self._finish_call(executor, result, seconds)
        return result

    def _bring_up_to_date(self, executor: Executor) -> None:
        """Take the device, with the weights as the host has them if somebody wrote to those."""
        self._take_device()
        if self._host_writes.is_written() and executor.isAttachedToDevice():
            self._send_weights()
        if self._optimizer is not None and self._port.options.replicas > 1:
            send_optimizer(self._port, executor, self._optimizer.device)
            give_replica_buffers(self._port, self._findings, executor)

    def keep_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> KeptCall:
        """Keep what a search for NaN needs of a call that is about to run; raises as the call would."""
        try:
            self._bring_up_to_date(self.executor)
            return keep_call(self._port, self.executor, self._optimizer, args, kwargs)
        except Exception as error:
            self._raise_explained(error, args, kwargs)

    def _finish_call(self, executor: Executor, result: object, seconds: float) -> None:
        """End a call: count it; what it trained and wrote is no news from the host."""
        if not self._has_run:
            self._has_run, self._result_bytes = True, _count_bytes(flatten_tensors(result))
        self._counts.num_unseen += self._runs_per_call
        times, record = None if self._session is None else self._session.call_times, self.record
        record.num_calls += 1
        record.num_samples += record.samples_per_call or 0
        record.call_seconds += seconds
        record.bytes_to_device += self._batch_bytes
        record.bytes_to_host += self._result_bytes
        if times is not None:
            entered, started, ended, left = times
            record.host_to_device_seconds = (record.host_to_device_seconds or 0.0) + started - entered
            record.run_seconds = (record.run_seconds or 0.0) + ended - started
            record.device_to_host_seconds = (record.device_to_host_seconds or 0.0) + left - ended
        self._host_writes.note_call()
        if self._has_let_go or self._host_writes.has_aliases:
            # looking at the host's tensors, or at an alias of them, would not fetch what it has trained
            executor.copyWeightsToHostIfNeeded()
        if not self.trains:
            if self.written_state:
                # what a call writes that trains nothing, as BatchNorm does in train mode
                executor.copyWeightsToHost()
                record.bytes_to_host += self._weight_bytes
                self._host_writes.note_agreement()
            note_outputs(result, record, self._findings)
        if self._findings.deferred:
            # the executor has changed its engine, or found out why it does not
            self._findings.say_deferred()
            record.note_engine_change(self._port.backend.compiled_step(executor))

    def say_late_changes(self) -> None:
        """Say (D005) what has changed since the step was compiled, if it is."""
        if self._compiled_in is not None and self.executor is not None:
            self._compiled_in.say()

    def _raise_explained(self, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
        explained = explain_failure(error, self.signature, args, kwargs, remedy=self._remedy, model=self._port.model)
        if explained is None:
            raise error
        # an error that carries the same finding would print it a second time
        raise explained from (None if getattr(error, "finding", None) is explained.finding else error)

    @property
    def _remedy(self) -> str:
        return f"to compile for batches like this one instead: `{self._owner}.destroy()`, then call again"

    # -- the device ----------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Take the device; DeviceError D004 or D007 when there is no executable to put on it."""
        if self.executor is None:
            raise DeviceError.at_caller(
                "D007" if self._was_destroyed else "D004",
                message=f"the {self.record.name} graph is not compiled, so there is nothing to put on the device",
                help=f"compile first: `{self._owner}.compile(*batch)`",
            )
        self._take_device()
        if not self.is_attached:
            self.executor.attachToDevice()

    def detach(self) -> None:
        """Release the device if the executor holds it; weights and optimizer state come to the host."""
        if self.is_attached:
            keep_replica_buffers(self._port, self.executor, has_trained=self.trains and self._has_run)
            self.executor.detachFromDevice()

    def destroy(self) -> None:
        """Drop the executable, after fetching what it has learnt; the next call makes another."""
        executor, self.executor, self.signature, self._session = self.executor, None, None, None
        if executor is not None:
            self._was_destroyed = True
            keep_replica_buffers(self._port, executor, has_trained=self.trains and self._has_run)
            try:
                executor.destroy()
            except Exception as error:
                # PopTorch takes the model's wrapper off last, and one that has let go of the model has none
                if not (self._has_let_go and "model was never wrapped" in str(error)):
                    raise
            for other in self._iter_sharing():
                other._others = [reference for reference in other._others if reference() is not self]
                # the wrapper that PopTorch took off was the other's, which fetches after each of its calls now
                other._has_let_go = other._has_let_go or (self._has_let_go and other.trains)
            self._others, self._has_let_go = [], False
            _COMPILED.discard(self)

    def copy_weights_to_host(self) -> None:
        """Fetch what was trained, if this runner trains."""
        if self.trains and self.executor is not None:
            self.executor.copyWeightsToHost()

    def send_weights(self) -> None:
        """Send the host's weights to the executor that holds the device; the others get them on their turn."""
        for runner in (self, *self._iter_sharing()):
            if runner.is_attached:
                runner._send_weights()

    def _send_weights(self) -> None:
        keep_replica_buffers(self._port, self.executor, has_trained=self.trains and self._has_run)
        self._host_writes.send(self.executor)
        self.record.bytes_to_device += self._weight_bytes

    # -- others that share weights -------------------------------------------------------------------------------------

    def _meet_others(self) -> None:
        """Get to know the runners that share tensors with this one, whose executor is about to be made.

        An executor that trains makes the host's tensors its own, to fetch what it has trained when somebody looks.
        Where two would, the earlier one lets go of them and fetches after each of its calls instead.
        """
        wrapped = self._port.wrapped
        self._tensors = frozenset(id(tensor) for tensor in [*wrapped.parameters(), *wrapped.buffers()])
        self._others = [
            weakref.ref(other)
            for other in _COMPILED
            if other._port.wrapped is wrapped or other._tensors & self._tensors
        ]
        self._take_device()
        if self.trains:
            for other in self._iter_sharing():
                if other.trains:
                    other._has_let_go = True
                    unwrap_model(other._port)

    def _take_device(self) -> None:
        """Let the others release the device; what they have trained is on the host then."""
        if self._others:
            for other in self._iter_sharing():
                other.detach()

    def _iter_sharing(self) -> Iterator[Runner]:
        for reference in self._others:
            other = reference()
            if other is not None:
                yield other


def _count_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


_COMPILED: MutableSet[Runner] = weakref.WeakSet()
