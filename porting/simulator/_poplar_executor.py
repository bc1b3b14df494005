"""Define `PoplarExecutor`, a wrapped model that compiles at its first call and runs on the simulated device."""

from __future__ import annotations

import copy
import datetime
import os
import sys
import threading
import weakref
from operator import attrgetter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch
from torch import nn

from ..diagnostics import caller_place
from ..support.lost_interrupts import pass_on_interrupts
from . import profiling, tracing_state
from ._args_parser import BoundArguments
from ._device.device_target import refuse_to_run
from ._device.perf_counters import (
    EVENTS,
    Counters,
    Latency,
    collect_stamps,
    count_cycles,
    measure_compilation,
    measure_latency,
)
from ._device.session import DeviceSession
from ._executables.saved_executables import FileName, load_executable, save_executable
from ._graph.anchors import list_tensor_names
from ._graph.compiler_names import list_update_types
from ._graph.graph_files import render_ir
from ._logging import logger
from ._options.executor_options import make_executor_options
from ._options_impl import require
from ._printing import module_repr
from ._weights.replica_parameters import ParameterProxy, PerReplicaParams
from ._weights.weight_owners import Owner, make_owned_class
from .errors import createPoptorchError
from .options import Options
from .tracing_state import _OverwriteContextManager

__all__ = ["PoplarExecutor", "_OverwriteContextManager"]

# methods of `nn.Module` that return the module: what is chained to them runs on the host
_MOVES = frozenset(["to", "cpu", "cuda", "half", "float", "double", "bfloat16", "type", "xpu", "to_empty"])

_executors: weakref.WeakSet[PoplarExecutor] = weakref.WeakSet()


class PoplarExecutor:
    """Made by `trainingModel` and `inferenceModel`, not by users.

    Calling it runs device iterations x accumulation x replicas micro-batches; in training the weights are updated
    inside the call. Weights are on the device from compilation on and are copied back when the host reads them.
    Threads that share an executor are served one at a time.

    It has PopTorch's names; the work is that of its `device_session`.
    """

    # Programs execute this module again, so that classes of one name exist; all of them have this mark.
    _is_poptorch_executor = True
    _precompile_hooks = tracing_state.pre_compile_hooks
    _postcompile_hooks = tracing_state.post_compile_hooks

    def __init__(
        self,
        model: nn.Module,
        options: Optional[Options],
        training: bool,
        poptorch_version: str,
        optimizer: Optional[torch.optim.Optimizer] = None,
        user_model: Optional[nn.Module] = None,
    ) -> None:
        """Take over `model`, the copy that is traced; `user_model` is the object that the user holds."""
        pass_on_interrupts()
        self._lock = threading.RLock()
        _executors.add(self)
        self._version = poptorch_version
        self._warned_moves = False
        self._session = DeviceSession(
            model,
            user_model if user_model is not None else model,
            make_executor_options(options, training=training),
            owner=Owner(self) if training else None,
        )
        if not training and optimizer is not None:
            raise AssertionError("An optimizer is only for training models")
        if optimizer is not None:
            self.setOptimizer(optimizer)
        self.options._freeze()
        self._session.wrap_user_model()
        self._profiling = profiling.Channel("poptorch.trainingModel" if training else "poptorch.inferenceModel")
        profiled = ("copyWeightsToHost", "copyWeightsToDevice", "setOptimizer", "compile", "destroy")
        self._profiling.instrument(self, *profiled)

    @classmethod
    def _renew_locks(cls) -> None:
        """Free the executors of a forked process: the threads that held their locks are not in it."""
        for executor in list(_executors):
            executor._lock = threading.RLock()

    # -- calls -----------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one device call, compiling first if needed; return the outputs nested as `forward` returned them."""
        session = self._session
        with self._lock:
            if session.is_attached:
                bound = session.parser.bind(args, kwargs)
            else:
                refuse_to_run(session.options)
                bound = session.parser.bind(args, kwargs)
                if session.compiled is None:
                    session.compile(bound, waits=False)
                if not session.is_attached:
                    self.attachToDevice()
            if not session.is_training:
                session.follow_training_model(send=self.copyWeightsToDevice)
            return session.run(bound)

    def getTensorNames(self) -> List[str]:
        """Return the tensor names that `Options.anchorTensor` takes; raises AssertionError before compilation."""
        session = self._session
        require(session.compiled is not None, "Model must be compiled before calling getTensorNames")
        compiled = session.require_compiled()
        return list_tensor_names(compiled.graph, compiled.plan, session.optimizer.list_names(session.user_model))

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """Return an anchored tensor of the last call; AssertionError if `Options.anchorTensor` never got the name."""
        require(short_name in self._anchor_memory, f"No tensor with name {short_name} found.")
        return self._anchor_memory[short_name]

    def _debugGetPopartIR(self) -> str:
        """Return the compiled graph as JSON: the simulator's own rendering, see `render_ir`."""
        session = self._session
        compiled = session.require_compiled()
        if not session.is_training:
            return render_ir(compiled.graph, update_types=())
        kind = session.optimizer.settings["optimizer_type"].name
        has_momentum = any("Accl1" in slots for slots in compiled.state.slots.values())
        return render_ir(compiled.graph, update_types=list_update_types(kind, has_momentum=has_momentum))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for these arguments and run nothing; no weight changes."""
        with self._lock:
            bound = self._session.parser.bind(args, kwargs)
            if self.isCompiled():
                logger.warning("Call to compile() ignored: the executable is already compiled")
                return
            self._session.compile(bound)

    # -- files ---------------------------------------------------------------------------------------------------------

    def compileAndExport(self, filename: FileName, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compile for these arguments and `save` the result; also for an offline device."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model=export_model)

    def save(self, filename: FileName, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the executable to a file, by default with all that `poptorch.load` needs to restore the executor.

        Weights and optimizer state are fetched first. Raises `poptorch.Error` without an executable, and AssertionError
        if the folder's name belongs to a file. `filename` may be a directory: the file is ``model.poptorch`` then.
        """
        with self._lock:
            save_executable(self._session, filename, export_model=export_model, save_rng_state=save_rng_state)

    def loadExecutable(self, filename: FileName) -> None:
        """Take over an executable that `save` wrote instead of compiling one; the model must be the same.

        Raises `poptorch.Error` for a file of another kind, version or model.
        """
        with self._lock:
            load_executable(self._session, filename)

    # -- weights -----------------------------------------------------------------------------------------------------

    def copyWeightsToHost(self) -> None:
        """Fetch all parameters and buffers from the device into the host's tensors."""
        with self._lock:
            self._session.copy_weights_to_host()

    def copyWeightsToDevice(self) -> None:
        """Send the host's parameters and buffers to the device; trained values not yet fetched are lost."""
        with self._lock:
            self._session.copy_weights_to_device()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch the weights if the host's are out of date; tell whether they were."""
        # Asked without the lock: an executor that waits for another one has nothing to fetch, so no two wait for each
        # other.
        if not self._session.is_ahead_of_host:
            return False
        with self._lock:
            is_needed = self._session.is_ahead_of_host
            if is_needed:
                logger.debug("Implicit copyWeightsToHost()")
                self.copyWeightsToHost()
        return is_needed

    def copyNamedBuffersToDevice(self) -> None:
        """Send the buffers that `Options.updatableNamedBuffers` lists to the device, and nothing else."""
        with self._lock:
            self._session.copy_named_buffers_to_device()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Load weights into the user's model, and onto the device if attached."""
        with self._lock:
            result = self.model.load_state_dict(state_dict, strict=strict)
            if self._session.is_attached:
                self.copyWeightsToDevice()
        return result

    # -- optimizer ---------------------------------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Send the optimizer's present settings to the device; needed after every change of them on the host.

        Raises AssertionError or ValueError for an optimizer that the device does not have, and `poptorch.Error` for
        one of another type than the model was compiled with; the earlier optimizer is kept then.
        """
        with self._lock:
            self._session.set_optimizer(optimizer)

    # -- device ------------------------------------------------------------------------------------------------------

    def isCompiled(self) -> bool:
        """Tell whether there is an executable."""
        return self._session.compiled is not None

    def isAttachedToDevice(self) -> bool:
        """Tell whether the executable is on its device."""
        return self.isCompiled() and self._session.is_attached

    def attachToDevice(self) -> None:
        """Take the device again after `detachFromDevice`; the host's weights are sent to it."""
        with self._lock:
            self._session.attach_again()

    def detachFromDevice(self) -> None:
        """Release the device; its state is copied to the host first."""
        with self._lock:
            self._session.detach()

    def destroy(self) -> None:
        """Drop the executable; a training executor first fetches the weights and restores the model's classes."""
        with self._lock:
            self._session.destroy()

    def __del__(self, _interpreter_ends: Callable[[], bool] = sys.is_finalizing) -> None:
        # the names of modules may be gone by then, and nothing reads the weights any more
        if not _interpreter_ends() and "_session" in self.__dict__:
            self._session.leave_weights_behind()

    @property
    def rng_state(self) -> Optional[List[int]]:
        """The seed followed by the state of the device's random stream; only the seed before the first run."""
        with self._lock:
            return self._session.read_random_state()

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        with self._lock:
            self._session.set_random_state(state)

    # -- measurements --------------------------------------------------------------------------------------------------

    def cycleCount(self) -> int:
        """Return the cycles of the last run on simulated hardware: its time on this CPU at the IPU's clock."""
        return count_cycles(self._session.call_times, self.options)

    def compilationTime(self) -> datetime.timedelta:
        """Return the seconds of the compilation, including the second that one for IPUs takes at least."""
        if not self.isCompiled():
            raise createPoptorchError("Please compile the model before obtaining compilation time.")
        return measure_compilation(self.options)

    def getPerfCounters(self) -> Counters:
        """Return when the tensors of the last call moved, in seconds: `{event: [[...] for each tensor]}`."""
        compiled, times = self._session.compiled, self._session.call_times
        if compiled is None or times is None:
            return {event: [[]] for event in EVENTS}
        return collect_stamps(compiled.graph, compiled.plan, times, self.options)

    def getHostIpuLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the first input requested to the last one received."""
        return measure_latency(self.getPerfCounters(), "input", "input_complete", min)

    def getComputeLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the last input received to the last output ready."""
        return measure_latency(self.getPerfCounters(), "input_complete", "output", max)

    def getIpuHostLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the first output ready to the last one returned."""
        return measure_latency(self.getPerfCounters(), "output", "output_complete", min)

    def getLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the first input requested to the last output returned."""
        return measure_latency(self.getPerfCounters(), "input", "output_complete", min)

    # -- the user's model --------------------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The user's module."""
        return self._session.user_model

    @property
    def options(self) -> Options:
        """The executor's own options, frozen."""
        return self._session.options

    @property
    def per_replica_params(self) -> PerReplicaParams:
        """The parameters with a value of their own for each group of replicas, by name."""
        return self._session.per_replica

    @per_replica_params.setter
    def per_replica_params(self, grouped: PerReplicaParams) -> None:
        self._session.per_replica = grouped

    @property
    def PoptorchParameter(self) -> Any:
        """The class of the model's parameters while a training executor owns them; None for inference."""
        owner = self._session.owner
        return make_owned_class(nn.Parameter, (owner,)) if owner is not None else None

    @property
    def PoptorchBuffer(self) -> Any:
        """The class of the model's buffers while a training executor owns them; None for inference."""
        owner = self._session.owner
        return make_owned_class(torch.Tensor, (owner,)) if owner is not None else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_session" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self.model, name)
        if name in _MOVES and not self._warned_moves:
            self._warned_moves = True
            logger.warning(
                "`.%s` of an executor is the method of the bare module (%s): what it returns runs on the host, not on "
                "the device",
                name,
                caller_place(),
            )
        return ParameterProxy(value, name, self.per_replica_params) if isinstance(value, nn.Parameter) else value

    def __getstate__(self) -> Dict[str, Any]:
        if self._training or self.isCompiled():
            raise TypeError("a compiled executor, or one for training, cannot be pickled: pickle its model")
        state = {name: value for name, value in self.__dict__.items() if name != "_lock"}
        return {**state, "_session": copy.copy(self._session)}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())
        _executors.add(self)

    def __repr__(self) -> str:
        return module_repr(self.model)

    # -- what the simulator's own parts, and programs written for PopTorch, look at ----------------------------------

    @property
    def device_session(self) -> DeviceSession:
        """The session that runs the calls; PopTorch has no counterpart."""
        return self._session

    _model = property(attrgetter("_session.model"))
    _user_model = property(attrgetter("_session.user_model"))
    _options = property(attrgetter("_session.options"))
    _training = property(attrgetter("_session.is_training"))
    _is_attached = property(attrgetter("_session.is_attached"))
    _dirty_host_weights = property(attrgetter("_session.is_ahead_of_host"))
    _host_weights_version = property(attrgetter("_session.host_weights_version"))
    _anchor_memory = property(attrgetter("_session.anchor_memory"))
    _optimizer = property(attrgetter("_session.optimizer.host"))
    _dict_optimizer = property(attrgetter("_session.optimizer.settings"))

    @property
    def _executable(self) -> Any:
        return self._session.compiled.obtained.executable if self._session.compiled is not None else None

    @property
    def _executable_inputs(self) -> Optional[BoundArguments]:
        return self._session.signature.arguments if self._session.signature is not None else None

    @property
    def _outputs_structure(self) -> Any:
        return self._session.compiled.graph.output_structure if self._session.compiled is not None else None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PoplarExecutor._renew_locks)
