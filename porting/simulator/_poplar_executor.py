"""`PoplarExecutor`: a wrapped model that compiles at its first call and runs on the simulated device."""

from __future__ import annotations

import datetime
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import nn

from . import _tracing_state, profiling
from ._args_parser import ArgsParser, BoundArguments, CompiledSignature
from ._executables.saved_executables import FileName, load_executable, save_executable
from ._execution.attachment import attach_again, destroy, detach, leave_weights_behind, refuse_to_run
from ._execution.compilation import compile_executor
from ._execution.compiler import CompiledModel
from ._execution.device_calls import run_call
from ._execution.device_pool import Claim
from ._execution.executor_options import executor_options
from ._execution.model_access import ParameterProxy, is_move, warn_of_move
from ._execution.perf_counters import (
    CallTimes,
    Counters,
    Latency,
    compilation_time,
    cycle_count,
    latency,
    perf_counters,
)
from ._execution.random_stream import keep_random_state, random_state
from ._graph.graph_views import anchored_tensor, popart_ir, tensor_names_of
from ._logging import logger
from ._optimizer.device_optimizer import DeviceOptimizer, parameter_names
from ._printing import module_repr
from ._tracing_state import _OverwriteContextManager
from ._weights.host_weights import wrap_model
from ._weights.replica_parameters import PerReplicaParams
from ._weights.weight_owners import Owner, owned_class
from ._weights.weight_transfer import (
    copy_named_buffers_to_device,
    copy_weights_to_device,
    copy_weights_to_host,
    copy_weights_to_host_if_needed,
    follow_training_model,
    send_weights,
)
from .errors import createPoptorchError
from .options import Options

__all__ = ["PoplarExecutor", "_OverwriteContextManager"]


_PROFILED = ("copyWeightsToHost", "copyWeightsToDevice", "setOptimizer", "compile", "destroy")


_executors: weakref.WeakSet[PoplarExecutor] = weakref.WeakSet()


def _renew_locks() -> None:
    """Free the executors of a forked process: the threads that held their locks are not in it."""
    for executor in list(_executors):
        executor._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class PoplarExecutor:
    """Made by `trainingModel` and `inferenceModel`, not by users.

    Calling it runs device iterations x accumulation x replicas micro-batches; in training the weights are updated
    inside the call. Weights live on the device from compilation on and come back when the host looks at them.
    Threads that share an executor are served one at a time.
    """

    # Programs execute this module again, so that classes of one name exist; all of them have this mark.
    _is_poptorch_executor = True
    _precompile_hooks = _tracing_state.pre_compile_hooks
    _postcompile_hooks = _tracing_state.post_compile_hooks

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
        self._lock = threading.RLock()
        _executors.add(self)
        self._compiled: Optional[CompiledModel] = None
        self._model = model
        self._user_model = user_model if user_model is not None else model
        self._training = training
        self._version = poptorch_version
        self._options = executor_options(options, training=training)
        self._args_parser = ArgsParser(getattr(model, "forward", model))
        self._signature: Optional[CompiledSignature] = None
        self.per_replica_params: PerReplicaParams = {}
        self._dirty_host_weights = False
        self._host_weights_version = 0
        self._is_attached = False
        self._host_rng_state_is_dirty = False
        self._claim: Optional[Claim] = None
        self._call_times: Optional[CallTimes] = None
        self._logs_cycles = bool(self._options._Popart.options.get("instrumentWithHardwareCycleCounter"))
        self._anchor_memory: Dict[str, torch.Tensor] = {}
        self._warned_not_contiguous = False
        self._warned_moves = False
        self._cached_rng_state: Optional[List[int]] = None
        self._owner = Owner(self) if training else None
        if self._options.exists("random_seed"):
            self._cached_rng_state = [self._options.random_seed]
        if not training and optimizer is not None:
            raise AssertionError("An optimizer is only for training models")
        self._device_optimizer = DeviceOptimizer(self._options)
        if optimizer is not None:
            self.setOptimizer(optimizer)
        self._options._freeze()
        self._wrap_user_model()
        self._profiling = profiling.Channel("poptorch.trainingModel" if training else "poptorch.inferenceModel")
        self._profiling.instrument(self, *_PROFILED)

    # -- calls -----------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one device call, compiling first if needed; return the outputs nested as `forward` returned them."""
        with self._lock:
            if self._is_attached:
                bound = self._args_parser.bind(args, kwargs)
            else:
                refuse_to_run(self._options)
                bound = self._args_parser.bind(args, kwargs)
                if self._compiled is None:
                    self._compile(bound)
                if not self._is_attached:
                    self.attachToDevice()
            if not self._training:
                follow_training_model(self)
            return run_call(self, bound)

    def getTensorNames(self) -> List[str]:
        """Return the names of tensors that `Options.anchorTensor` can ask for; AssertionError before compilation."""
        return tensor_names_of(self)

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """Return an anchored tensor of the last call; AssertionError if `Options.anchorTensor` never got the name."""
        return anchored_tensor(self, short_name)

    def _debugGetPopartIR(self) -> str:
        """Return the compiled graph as JSON: the simulator's own rendering, see `graph_ir`."""
        return popart_ir(self)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for these arguments and run nothing; no weight changes."""
        with self._lock:
            bound = self._args_parser.bind(args, kwargs)
            if self._compiled is not None:
                logger.warning("Call to compile() ignored: the executable is already compiled")
                return
            self._compile(bound)

    def _compile(self, bound: BoundArguments) -> None:
        compile_executor(self, bound)

    # -- files ---------------------------------------------------------------------------------------------------------

    def compileAndExport(self, filename: FileName, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compile for these arguments and `save` the result; also for an offline device."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model=export_model)

    def save(self, filename: FileName, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the executable to a file, by default with all that `poptorch.load` needs to make the executor again.

        Weights and optimizer state are fetched first. Raises `poptorch.Error` without an executable, and AssertionError
        if the folder's name belongs to a file. `filename` may be a directory: the file is ``model.poptorch`` then.
        """
        with self._lock:
            save_executable(self, filename, export_model=export_model, save_rng_state=save_rng_state)

    def loadExecutable(self, filename: FileName) -> None:
        """Take over an executable that `save` wrote instead of compiling one; the model must be the same.

        Raises `poptorch.Error` for a file of another kind, version or model.
        """
        with self._lock:
            load_executable(self, filename)

    def _wrap_user_model(self) -> None:
        if self._owner is not None:
            wrap_model(self._user_model, self._owner)

    # -- weights -----------------------------------------------------------------------------------------------------

    def copyWeightsToHost(self) -> None:
        """Fetch all parameters and buffers from the device into the host's tensors."""
        with self._lock:
            copy_weights_to_host(self)

    def copyWeightsToDevice(self) -> None:
        """Send the host's parameters and buffers to the device; what was trained there and not fetched is lost."""
        with self._lock:
            copy_weights_to_device(self)

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch the weights if the host's are out of date; tell whether they were."""
        return copy_weights_to_host_if_needed(self)

    def copyNamedBuffersToDevice(self) -> None:
        """Send the buffers that `Options.updatableNamedBuffers` lists to the device, and nothing else."""
        with self._lock:
            copy_named_buffers_to_device(self)

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> Any:
        """Load weights into the user's model, and onto the device if attached."""
        with self._lock:
            result = self._user_model.load_state_dict(state_dict, strict=strict)
            if self._is_attached:
                self.copyWeightsToDevice()
        return result

    # -- optimizer ---------------------------------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Hand the optimizer's present settings to the device; needed after every change of them on the host.

        Raises AssertionError or ValueError for an optimizer that the device does not have, and `poptorch.Error` for
        one of another type than the model was compiled with; the optimizer before it is kept then.
        """
        with self._lock:
            self._device_optimizer.take(optimizer)
            if self._compiled is not None and self._is_attached:
                self._device_optimizer.upload_settings(parameter_names(self._user_model))
                self._upload_optimizer_state()

    def _upload_optimizer_state(self) -> None:
        if self._compiled is not None and self._device_optimizer.has_state_to_upload:
            # The vendor's upload writes weights and state together.
            self.copyWeightsToHostIfNeeded()
            send_weights(self)
        self._device_optimizer.upload_state()

    @property
    def _optimizer(self) -> Optional[torch.optim.Optimizer]:
        return self._device_optimizer.host

    @property
    def _dict_optimizer(self) -> Dict[str, Any]:
        return self._device_optimizer.settings

    # -- device ------------------------------------------------------------------------------------------------------

    def isCompiled(self) -> bool:
        """Tell whether there is an executable."""
        return self._compiled is not None

    def isAttachedToDevice(self) -> bool:
        """Tell whether the executable is on its device."""
        return self._compiled is not None and self._is_attached

    def attachToDevice(self) -> None:
        """Take the device again after `detachFromDevice`; the host's weights are sent to it."""
        with self._lock:
            attach_again(self)

    def detachFromDevice(self) -> None:
        """Give the device free; what is on it comes to the host first."""
        with self._lock:
            detach(self)

    def destroy(self) -> None:
        """Drop the executable; a training executor first fetches the weights and gives the model its classes back."""
        with self._lock:
            destroy(self)

    def __del__(self, _interpreter_ends: Callable[[], bool] = sys.is_finalizing) -> None:
        # the names of modules may be gone by then, and nobody is left who looks at the weights
        if not _interpreter_ends():
            leave_weights_behind(self)

    @property
    def rng_state(self) -> Optional[List[int]]:
        """The seed followed by the state of the device's random stream; only the seed before the first run."""
        with self._lock:
            return random_state(self)

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        with self._lock:
            keep_random_state(self, state)

    # -- measurements --------------------------------------------------------------------------------------------------

    def cycleCount(self) -> int:
        """Return the cycles of the last run on simulated hardware: its time on this CPU at the IPU's clock."""
        return cycle_count(self)

    def compilationTime(self) -> datetime.timedelta:
        """Return how long the compilation took, the second included that a compilation for IPUs takes at the least."""
        return compilation_time(self)

    def getPerfCounters(self) -> Counters:
        """Return when the tensors of the last call moved, in seconds: `{event: [[...] for each tensor]}`."""
        return perf_counters(self)

    def getHostIpuLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the first input asked for to the last one there."""
        return latency(self, "input", "input_complete", min)

    def getComputeLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the last input there to the last output ready."""
        return latency(self, "input_complete", "output", max)

    def getIpuHostLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the first output ready to the last one handed back."""
        return latency(self, "output", "output_complete", min)

    def getLatency(self) -> Latency:
        """Return (shortest, longest, mean) seconds from the first input asked for to the last output handed back."""
        return latency(self, "input", "output_complete", min)

    def _require_compiled(self) -> CompiledModel:
        if self._compiled is None:
            raise createPoptorchError("Model has not been compiled or has been destroyed.")
        return self._compiled

    # -- the user's model --------------------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The user's module."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The executor's own options, frozen."""
        return self._options

    @property
    def PoptorchParameter(self) -> Any:
        """The class of the model's parameters while a training executor owns them; None for inference."""
        return owned_class(nn.Parameter, (self._owner,)) if self._owner is not None else None

    @property
    def PoptorchBuffer(self) -> Any:
        """The class of the model's buffers while a training executor owns them; None for inference."""
        return owned_class(torch.Tensor, (self._owner,)) if self._owner is not None else None

    @property
    def _executable(self) -> Any:
        return self._compiled.executable if self._compiled is not None else None

    @property
    def _executable_inputs(self) -> Optional[BoundArguments]:
        return self._signature.arguments if self._signature is not None else None

    @property
    def _outputs_structure(self) -> Any:
        return self._compiled.graph.output_structure if self._compiled is not None else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._user_model, name)
        if is_move(name) and not self._warned_moves:
            self._warned_moves = True
            warn_of_move(name)
        return ParameterProxy(value, name, self.per_replica_params) if isinstance(value, nn.Parameter) else value

    def __getstate__(self) -> Dict[str, Any]:
        if self._training or self._compiled is not None:
            raise TypeError("a compiled executor, or one for training, cannot be pickled: pickle its model")
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())
        _executors.add(self)

    def __repr__(self) -> str:
        return module_repr(self._user_model)
