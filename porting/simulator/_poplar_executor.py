"""`PoplarExecutor`: a wrapped model that compiles at its first call and runs on the simulated device."""

from __future__ import annotations

import copy
import datetime
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import nn

from ..capture import flatten_tensors, rebuild
from ..capture.device_tensor import DeviceTensor
from ..capture.dtypes import NARROWED
from ..capture.module_state import HostTensor, host_tensors
from ..diagnostics import caller_place
from . import optim
from ._args_parser import ArgsParser, BoundArguments, check_same_signature, specification
from ._compiler import CompiledModel, compile_model
from ._device_optimizer import DeviceOptimizer
from ._host_weights import unwrap_model, wrap_model
from ._logging import cpp_log, logger
from ._printing import module_repr
from .enums import ConnectionType, OutputMode
from .errors import createPoptorchError, native_error, not_simulated
from .options import Options

__all__ = ["PoplarExecutor"]

_NO_EXECUTABLE = "Model has not been compiled or has been destroyed."
_MOVES = frozenset(["to", "cpu", "cuda", "half", "float", "double", "bfloat16", "type", "xpu", "to_empty"])
_NOT_SIMULATED = frozenset(
    "compileAndExport save loadExecutable copyNamedBuffersToDevice getTensorNames getAnchoredTensor getPerfCounters "
    "getHostIpuLatency getComputeLatency getIpuHostLatency getLatency _debugGetPopartIR per_replica_params".split()
)


class PoplarExecutor:
    """Made by `trainingModel` and `inferenceModel`, not by users.

    Calling it runs device iterations x accumulation x replicas micro-batches; in training the weights are updated
    inside the call. Weights live on the device from compilation on and come back when the host looks at them.
    """

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
        self._compiled: Optional[CompiledModel] = None
        self._model = model
        self._user_model = user_model if user_model is not None else model
        self._training = training
        self._version = poptorch_version
        self._options = _own_options(options, training)
        self._args_parser = ArgsParser(model.forward)
        self._executable_inputs: Optional[BoundArguments] = None
        self._dirty_host_weights = False
        self._host_weights_version = 0
        self._is_attached = False
        self._has_run = False
        self._warned_not_contiguous = False
        self._warned_moves = False
        self._cached_rng_state: Optional[List[int]] = None
        self._hosts: List[HostTensor] = []
        self.PoptorchParameter: Any = None
        self.PoptorchBuffer: Any = None
        if self._options.exists("random_seed"):
            self._cached_rng_state = [self._options.random_seed]
        if not training and optimizer is not None:
            raise AssertionError("An optimizer is only for training models")
        self._device_optimizer = DeviceOptimizer(self._options)
        if optimizer is not None:
            self.setOptimizer(optimizer)
        self._options._freeze()
        if training:
            self.PoptorchParameter, self.PoptorchBuffer = wrap_model(self._user_model, self)

    # -- calls -----------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one device call, compiling first if needed; return the outputs nested as `forward` returned them."""
        if self._options.connection_type == ConnectionType.Never:
            raise AssertionError(
                "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead "
                "of model(inputs)"
            )
        if self._options._Popart.options.get("instrumentWithHardwareCycleCounter"):
            raise native_error("Cycle count logging is only supported on actual IPU hardware.")
        bound = self._args_parser.bind(args, kwargs)
        compiled = self._compiled if self._compiled is not None else self._compile(bound)
        if not self._is_attached:
            self.attachToDevice()
        if not self._training:
            self._follow_training_model()
        assert self._executable_inputs is not None
        check_same_signature(self._executable_inputs, bound)
        return self._run(compiled, bound)

    def _run(self, compiled: CompiledModel, bound: BoundArguments) -> Any:
        hosts = bound.tensors(like=self._executable_inputs)
        inputs = [self._device_input(tensor) for tensor in hosts]
        if self._training:
            self._upload_optimizer_state(compiled)
        optimizer = self._device_optimizer
        results = compiled.executable.run(
            compiled.state, inputs, compiled.plan, groups=optimizer.groups, group_names=optimizer.group_names
        )
        self._has_run = True
        if self._training:
            self._dirty_host_weights = True
            if isinstance(optimizer.host, optim.Optimizer):
                optimizer.host.host_state_is_dirty = True
        graph = compiled.graph
        outputs, written = results[: len(graph.outputs)], results[len(graph.outputs) :]
        for index, value in zip(sorted(graph.mutated_inputs), written):
            with torch.no_grad():
                hosts[index].copy_(value)
        for tensor in outputs:
            tensor.backward = _refuse_backward  # type: ignore[method-assign, assignment]
        return rebuild(graph.output_structure, outputs, replaces=lambda leaf: isinstance(leaf, DeviceTensor))

    def _device_input(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_contiguous():
            if not self._warned_not_contiguous:
                self._warned_not_contiguous = True
                logger.warning(
                    "At least one input tensor is not contiguous: non-contiguous tensors will be converted."
                )
            tensor = tensor.contiguous()
        tensor = tensor.detach() if tensor.requires_grad else tensor
        return tensor.to(NARROWED[tensor.dtype]) if tensor.dtype in NARROWED else tensor

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for these arguments and run nothing; no weight changes."""
        bound = self._args_parser.bind(args, kwargs)
        if self._compiled is not None:
            logger.warning("Call to compile() ignored: the executable is already compiled")
            return
        self._compile(bound)

    def _compile(self, bound: BoundArguments) -> CompiledModel:
        if _contains_dict((bound.positional, bound.named)):
            logger.warning(
                "Dicts as inputs only have partial support, they can be accessed using literal keys, but full Python "
                "functionality is not enabled. Consider changing dict inputs to tuple."
            )
        bar = self._options._progress_bar
        show = bar if self._options._show_compilation_progress_bar else None
        try:
            compiled = compile_model(self._model, bound, self._options, training=self._training, show=show)
        except BaseException:
            bar.close()
            raise
        self._executable_inputs = specification(bound)
        self._compiled = compiled
        self._hosts = host_tensors(self._user_model)
        self._has_run = False
        self._attach(compiled)
        return compiled

    # -- weights -----------------------------------------------------------------------------------------------------

    def copyWeightsToHost(self) -> None:
        """Fetch all parameters and buffers from the device into the host's tensors."""
        compiled = self._require_compiled()
        self._dirty_host_weights = False
        cpp_log("debug", "Writing weights from IPU to host.")
        with torch._C.DisableTorchFunctionSubclass():
            compiled.state.download(self._host_state())
        self._host_weights_version += 1

    def copyWeightsToDevice(self) -> None:
        """Send the host's parameters and buffers to the device; what was trained there and not fetched is lost."""
        compiled = self._require_compiled()
        self._dirty_host_weights = False
        self._device_optimizer.read_state(compiled.state)
        cpp_log("debug", "Writing weights from host to IPU memory.")
        with torch._C.DisableTorchFunctionSubclass():
            compiled.state.upload(self._host_state())

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch the weights if the host's are out of date; tell whether they were."""
        if not self._dirty_host_weights:
            return False
        logger.debug("Implicit copyWeightsToHost()")
        self.copyWeightsToHost()
        return True

    def _host_state(self) -> Dict[str, torch.Tensor]:
        return {host.name: host.tensor for host in self._hosts}

    def _follow_training_model(self) -> None:
        """Bring an inference executor's weights up to date with the training executor that owns the model's."""
        fetch = getattr(self._model, "copyWeightsToHostIfNeeded", None)
        if not callable(fetch):
            return
        fetch()
        trainer = type(self._model)._poptorch_executor()  # type: ignore[attr-defined]
        if trainer is not None and trainer._host_weights_version != self._host_weights_version:
            logger.debug("Implicit copyWeightsToDevice()")
            self.copyWeightsToDevice()
            self._host_weights_version = trainer._host_weights_version

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> Any:
        """Load weights into the user's model, and onto the device if attached."""
        result = self._user_model.load_state_dict(state_dict, strict=strict)
        if self._is_attached:
            self.copyWeightsToDevice()
        return result

    # -- optimizer ---------------------------------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Hand the optimizer's present settings to the device; needed after every change of them on the host."""
        current, compiled = self._device_optimizer.host, self._compiled
        if compiled is not None and optimizer is not current:
            if isinstance(current, optim.Optimizer):
                self._device_optimizer.read_state(compiled.state)
                current.state_dict = current.get_state_dict  # type: ignore[method-assign]
            if isinstance(optimizer, optim.Optimizer):
                optimizer.ipu_state_is_dirty = True
        if isinstance(optimizer, optim.Optimizer):
            optimizer.state_dict = _SyncedState(self, optimizer)  # type: ignore[method-assign]
        unfrozen = self._options._is_frozen
        self._options._unfreeze()
        try:
            self._device_optimizer.take(optimizer, is_compiled=compiled is not None)
        finally:
            if unfrozen:
                self._options._freeze()
        if compiled is not None and self._is_attached:
            self._device_optimizer.upload_settings(self._parameter_names(), compiled.state)
            self._upload_optimizer_state(compiled)

    def _parameter_names(self) -> Dict[int, str]:
        return {id(host.tensor): host.name for host in self._hosts if host.kind == "parameter"}

    def _upload_optimizer_state(self, compiled: CompiledModel) -> None:
        host = self._device_optimizer.host
        if isinstance(host, optim.Optimizer) and host.ipu_state_is_dirty and host.has_state():
            self.copyWeightsToHostIfNeeded()
            self._device_optimizer.upload_state(compiled.state)

    def _read_optimizer_state(self, optimizer: optim.Optimizer) -> None:
        if self._compiled is None or optimizer is not self._device_optimizer.host or optimizer.ipu_state_is_dirty:
            return
        if optimizer.host_state_is_dirty:
            self._device_optimizer.read_state(self._compiled.state)
        else:
            logger.debug("Using cached optimiser state dict")

    @property
    def _optimizer(self) -> Optional[torch.optim.Optimizer]:
        return self._device_optimizer.host

    @property
    def _dict_optimizer(self) -> Dict[str, Any]:
        return self._device_optimizer.settings or {}

    # -- device --------------------------------------------------------------------------------------------------------

    def isCompiled(self) -> bool:
        """Tell whether there is an executable."""
        return self._compiled is not None

    def isAttachedToDevice(self) -> bool:
        """Tell whether the executable is on its device."""
        return self._compiled is not None and self._is_attached

    def attachToDevice(self) -> None:
        """Take the device again after `detachFromDevice`; the host's weights are sent to it."""
        compiled = self._require_compiled()
        if self._options.connection_type == ConnectionType.Never:
            raise AssertionError("Trying to attach to an offline device (ConnectionType.Never)")
        if self._is_attached:
            raise createPoptorchError("Device is already attached")
        self._attach(compiled)

    def _attach(self, compiled: CompiledModel) -> None:
        self._is_attached = True
        self._dirty_host_weights = False
        cpp_log("debug", "Writing weights from host to IPU memory.")
        with torch._C.DisableTorchFunctionSubclass():
            compiled.state.upload(self._host_state())
        if self._training:
            self._device_optimizer._pending = True
            self._device_optimizer.upload_settings(self._parameter_names(), compiled.state)
            host = self._device_optimizer.host
            if isinstance(host, optim.Optimizer):
                host.host_state_is_dirty = not (host.ipu_state_is_dirty and host.has_state())
            self._upload_optimizer_state(compiled)
        if self._cached_rng_state is not None:
            compiled.state.rng_state = _generator_state(self._cached_rng_state)

    def detachFromDevice(self) -> None:
        """Give the device free; what is on it comes to the host first."""
        compiled = self._require_compiled()
        if not self._is_attached:
            raise createPoptorchError("Device is not attached")
        self._cached_rng_state = self.rng_state
        if self._training:
            self.copyWeightsToHostIfNeeded()
            self._device_optimizer.read_state(compiled.state)
            if isinstance(self._device_optimizer.host, optim.Optimizer):
                self._device_optimizer.host.ipu_state_is_dirty = self._device_optimizer.host.has_state()
        self._is_attached = False

    def destroy(self) -> None:
        """Drop the executable; a training executor first fetches the weights and gives the model its classes back."""
        if self._compiled is None:
            return
        if self._training:
            self.copyWeightsToHostIfNeeded()
            host = self._device_optimizer.host
            self._device_optimizer.read_state(self._compiled.state)
            if isinstance(host, optim.Optimizer):
                host.state_dict = host.get_state_dict  # type: ignore[method-assign]
            unwrap_model(self._user_model)
        self._compiled = None
        self._executable_inputs = None
        self._is_attached = False

    @property
    def rng_state(self) -> Optional[List[int]]:
        """The seed followed by the state of the device's random stream; only the seed before the first run."""
        compiled = self._require_compiled()
        if not self._has_run or compiled.state.rng_state is None:
            return self._cached_rng_state
        seed = self._options.random_seed if self._options.exists("random_seed") else 0
        return [seed, *compiled.state.rng_state.view(torch.int64).tolist()]

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        compiled = self._require_compiled()
        self._cached_rng_state = list(state)
        compiled.state.rng_state = _generator_state(self._cached_rng_state)

    def cycleCount(self) -> int:
        """Refuse: cycles exist on hardware only."""
        if not self._options._Popart.options.get("instrumentWithHardwareCycleCounter"):
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to enable."
            )
        raise createPoptorchError("Please run the model at least once before obtaining cycle count.")

    def compilationTime(self) -> datetime.timedelta:
        """Return how long the compilation took."""
        if self._compiled is None:
            raise createPoptorchError("Please compile the model before obtaining compilation time.")
        if not self._options._show_compilation_progress_bar:
            raise createPoptorchError(
                "Please set showCompilationProgressBar option to obtain compilation time."
            )
        return self._options._progress_bar.compilation_time or datetime.timedelta(0)

    def _require_compiled(self) -> CompiledModel:
        if self._compiled is None:
            raise createPoptorchError(_NO_EXECUTABLE)
        return self._compiled

    # -- the user's model ------------------------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The user's module."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The executor's own options, frozen."""
        return self._options

    @property
    def _executable(self) -> Any:
        return self._compiled.executable if self._compiled is not None else None

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_SIMULATED:
            not_simulated(f"PoplarExecutor.{name}")
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._user_model, name)
        if name in _MOVES:
            self._warn_of_move(name)
        return _ParameterProxy(value, name) if isinstance(value, nn.Parameter) else value

    def _warn_of_move(self, name: str) -> None:
        """PopTorch hands out the bare module here, and the program goes on on the host without a word."""
        if not self._warned_moves:
            self._warned_moves = True
            logger.warning(
                "`.%s` of an executor is the method of the bare module (%s): what it returns runs on the host, not on "
                "the device",
                name,
                caller_place(),
            )

    def __repr__(self) -> str:
        return module_repr(self._user_model)


class _ParameterProxy:
    """What reading a parameter off an executor gives: every attribute of the parameter, and its replica grouping."""

    def __init__(self, parameter: nn.Parameter, name: str) -> None:
        self._parameter = parameter
        self._name = name

    def replicaGrouping(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: weights that differ between replicas are not simulated."""
        not_simulated(f"PoplarExecutor.{self._name}.replicaGrouping", "all replicas would share the weights")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parameter, name)


class _SyncedState:
    """The `state_dict` of an optimizer that an executor uses: it fetches what is newer on the device first."""

    def __init__(self, executor: PoplarExecutor, optimizer: optim.Optimizer) -> None:
        self._executor = weakref.ref(executor)
        self._optimizer = weakref.ref(optimizer)

    def __call__(self) -> Dict[str, Any]:
        executor, optimizer = self._executor(), self._optimizer()
        if optimizer is None:
            return {}
        if executor is not None:
            executor._read_optimizer_state(optimizer)
        return optimizer.get_state_dict()


def _own_options(options: Optional[Options], training: bool) -> Options:
    if options and not isinstance(options, Options):
        raise createPoptorchError(
            f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)"
        )
    if options:
        options._freeze()
        own = options.clone()
    else:
        own = Options()
    if own.defaultOutputMode():
        own.outputMode(OutputMode.Final if training else OutputMode.All)
    if not training and own.Training.gradient_accumulation != 1:
        raise createPoptorchError(
            "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) "
            "when running a poptorch.inferenceModel(). Use poptorch.Options().deviceIterations to process a "
            "sufficient number of batches each run for pipelined execution instead."
        )
    return own


def _contains_dict(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and any(flatten_tensors(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_contains_dict(item) for item in value)


def _generator_state(words: Sequence[int]) -> torch.Tensor:
    """Turn `[seed]` or `[seed, *state]` into a state of torch's CPU generator."""
    if len(words) == 1:
        return torch.Generator().manual_seed(words[0]).get_state()
    return torch.tensor(list(words[1:]), dtype=torch.int64).view(torch.uint8).clone()


def _refuse_backward(*_args: Any, **_kwargs: Any) -> None:
    raise createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
