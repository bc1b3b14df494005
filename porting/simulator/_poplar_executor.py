"""`PoplarExecutor`: a wrapped model that compiles at its first call and runs on the simulated device."""

from __future__ import annotations

import datetime
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import nn

from ..capture.dtypes import NARROWED
from ..capture.module_state import host_tensors
from . import _tracing_state
from ._args_parser import ArgsParser, BoundArguments, CompiledSignature, contains_dict
from ._call_results import hand_back
from ._compiler import CompiledModel, compile_model
from ._device_optimizer import DeviceOptimizer, parameter_names
from ._executor_options import executor_options
from ._host_modes import on_device, recordable
from ._host_weights import download_weights, fetch_other_owners, owner_of, unwrap_model, upload_weights, wrap_model
from ._logging import logger
from ._model_access import UNSIMULATED_MEMBERS, ParameterProxy, is_move, warn_of_move
from ._printing import module_repr
from ._random_stream import generator_state, stream_words
from ._weight_owners import Owner, owned_class
from .enums import ConnectionType
from .errors import createPoptorchError, native_error, not_simulated
from .options import Options

__all__ = ["PoplarExecutor"]


class PoplarExecutor:
    """Made by `trainingModel` and `inferenceModel`, not by users.

    Calling it runs device iterations x accumulation x replicas micro-batches; in training the weights are updated
    inside the call. Weights live on the device from compilation on and come back when the host looks at them.
    """

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
        self._compiled: Optional[CompiledModel] = None
        self._model = model
        self._user_model = user_model if user_model is not None else model
        self._training = training
        self._version = poptorch_version
        self._options = executor_options(options, training=training)
        self._args_parser = ArgsParser(getattr(model, "forward", model))
        self._signature: Optional[CompiledSignature] = None
        self._dirty_host_weights = False
        self._host_weights_version = 0
        self._is_attached = False
        self._has_run = False
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
        if self._compiled is None:
            self._compile(bound)
        if not self._is_attached:
            self.attachToDevice()
        if not self._training:
            self._follow_training_model()
        return self._run(bound)

    def _run(self, bound: BoundArguments) -> Any:
        compiled, signature = self._require_compiled(), self._signature
        assert signature is not None
        signature.check(bound)
        hosts = bound.tensors(like=signature.arguments)
        inputs = [self._device_input(tensor) for tensor in hosts]
        if self._training:
            self._upload_optimizer_state()
        optimizer = self._device_optimizer
        try:
            with on_device():
                results = compiled.executable.run(
                    compiled.state,
                    [recordable(tensor) for tensor in inputs],
                    compiled.plan,
                    groups=optimizer.groups,
                    group_names=optimizer.group_names,
                )
        except BaseException:
            for parameter in compiled.state.parameters.values():
                parameter.grad = None
            raise
        finally:
            # A run that fails half way has done its first iterations.
            self._has_run = True
            if self._training:
                self._dirty_host_weights = True
                optimizer.mark_trained()
        return hand_back(compiled.graph, hosts, results)

    def _device_input(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            raise createPoptorchError(f"Inputs must be on the CPU, got a tensor on {tensor.device}")
        if not tensor.is_contiguous():
            if not self._warned_not_contiguous:
                self._warned_not_contiguous = True
                logger.warning("At least one input tensor is not contiguous: non-contiguous tensors will be converted.")
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

    def _compile(self, bound: BoundArguments) -> None:
        if contains_dict(bound):
            logger.warning(
                "Dicts as inputs only have partial support, they can be accessed using literal keys, but full Python "
                "functionality is not enabled. Consider changing dict inputs to tuple."
            )
        self._wrap_user_model()
        with torch.inference_mode(False):
            compiled = compile_model(self._model, bound, self._options, training=self._training)
        self._wrap_user_model()  # lazy parameters have a value now
        self._signature = CompiledSignature(bound)
        self._compiled = compiled
        self._has_run = False
        self._attach(compiled)

    def _wrap_user_model(self) -> None:
        if self._owner is not None:
            wrap_model(self._user_model, self._owner)

    # -- weights -----------------------------------------------------------------------------------------------------

    def copyWeightsToHost(self) -> None:
        """Fetch all parameters and buffers from the device into the host's tensors."""
        compiled = self._require_compiled()
        self._dirty_host_weights = False
        download_weights(self._user_model, compiled.state)
        if self._training:
            self._host_weights_version += 1

    def copyWeightsToDevice(self) -> None:
        """Send the host's parameters and buffers to the device; what was trained there and not fetched is lost."""
        compiled = self._require_compiled()
        self._dirty_host_weights = False
        self._device_optimizer.read_state()
        self._upload_weights(compiled)

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetch the weights if the host's are out of date; tell whether they were."""
        if not self._dirty_host_weights:
            return False
        logger.debug("Implicit copyWeightsToHost()")
        self.copyWeightsToHost()
        return True

    def copyNamedBuffersToDevice(self) -> None:
        """Send the buffers that `Options.updatableNamedBuffers` lists to the device, and nothing else."""
        compiled = self._require_compiled()
        names = self._options._Popart.options.get("updatableNamedBuffers")
        if not names:
            raise createPoptorchError("No named buffers marked as updatable via updatableNamedBuffers option")
        upload_weights(self._user_model, compiled.state, names=names)

    def _upload_weights(self, compiled: CompiledModel) -> None:
        fetch_other_owners(self._user_model, self)
        upload_weights(self._user_model, compiled.state)

    def _follow_training_model(self) -> None:
        """Bring an inference executor's weights up to date with the training executor that owns the model's."""
        fetch = getattr(self._model, "copyWeightsToHostIfNeeded", None)
        if not callable(fetch):
            return
        fetch()
        trainer = owner_of(self._model)
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
        """Hand the optimizer's present settings to the device; needed after every change of them on the host.

        Raises AssertionError or ValueError for an optimizer that the device does not have, and `poptorch.Error` for
        one of another type than the model was compiled with; the optimizer before it is kept then.
        """
        self._device_optimizer.take(optimizer)
        if self._compiled is not None and self._is_attached:
            self._device_optimizer.upload_settings(parameter_names(self._user_model))
            self._upload_optimizer_state()

    def _upload_optimizer_state(self) -> None:
        if self._compiled is not None and self._device_optimizer.has_state_to_upload:
            # The vendor's upload writes weights and state together.
            self.copyWeightsToHostIfNeeded()
            self._upload_weights(self._compiled)
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
        compiled = self._require_compiled()
        if self._options.connection_type == ConnectionType.Never:
            raise AssertionError("Trying to attach to an offline device (ConnectionType.Never)")
        if self._is_attached:
            raise createPoptorchError("Device is already attached")
        self._attach(compiled)

    def _attach(self, compiled: CompiledModel) -> None:
        self._dirty_host_weights = False
        self._upload_weights(compiled)
        if self._training:
            self._device_optimizer.attach(parameter_names(self._user_model), compiled.state)
        if self._cached_rng_state is not None:
            compiled.state.rng_state = generator_state(self._cached_rng_state)
        self._is_attached = True

    def detachFromDevice(self) -> None:
        """Give the device free; what is on it comes to the host first."""
        self._require_compiled()
        if not self._is_attached:
            raise createPoptorchError("Device is not attached")
        self._cached_rng_state = self.rng_state
        if self._training:
            self.copyWeightsToHostIfNeeded()
            self._device_optimizer.detach()
        self._is_attached = False

    def destroy(self) -> None:
        """Drop the executable; a training executor first fetches the weights and gives the model its classes back."""
        if self._compiled is None:
            return
        if self._training:
            self.copyWeightsToHostIfNeeded()
            self._device_optimizer.destroy()
            if owner_of(self._user_model) is self:
                unwrap_model(self._user_model)
        self._compiled = None
        self._signature = None
        self._is_attached = False

    def __del__(self) -> None:
        # What was trained must not be lost; no tensor may be touched while garbage is collected, so it is only kept.
        owner, compiled = self.__dict__.get("_owner"), self.__dict__.get("_compiled")
        if owner is not None and compiled is not None and self._dirty_host_weights:
            owner.leave_behind(compiled.state, {host.name: host.tensor for host in host_tensors(self._user_model)})

    @property
    def rng_state(self) -> Optional[List[int]]:
        """The seed followed by the state of the device's random stream; only the seed before the first run."""
        compiled = self._require_compiled()
        if not self._has_run or compiled.state.rng_state is None:
            return self._cached_rng_state
        seed = self._options.random_seed if self._options.exists("random_seed") else 0
        return stream_words(seed, compiled.state.rng_state)

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        compiled = self._require_compiled()
        compiled.state.rng_state = generator_state(state)
        self._cached_rng_state = list(state)

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
            raise createPoptorchError("Please set showCompilationProgressBar option to obtain compilation time.")
        return self._options._progress_bar.compilation_time or datetime.timedelta(0)

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
        if name in UNSIMULATED_MEMBERS:
            not_simulated(f"PoplarExecutor.{name}")
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._user_model, name)
        if is_move(name) and not self._warned_moves:
            self._warned_moves = True
            warn_of_move(name)
        return ParameterProxy(value, name) if isinstance(value, nn.Parameter) else value

    def __getstate__(self) -> Dict[str, Any]:
        if self._training or self._compiled is not None:
            raise TypeError("a compiled executor, or one for training, cannot be pickled: pickle its model")
        return self.__dict__

    def __repr__(self) -> str:
        return module_repr(self._user_model)
