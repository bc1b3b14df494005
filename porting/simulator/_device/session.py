"""Own what an executor has on its device, from compilation to `destroy`. An executor has one `DeviceSession`."""

from __future__ import annotations

import copy
from time import perf_counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ...capture import StepGraph
from ...capture.dtypes import NARROWED
from ...engines.calls.device_state import DeviceState
from ...engines.calls.guards import make_recordable, shut_out_host_modes
from ...host_tensors import host_tensors
from .. import trouble
from .._args_parser import ArgsParser, BoundArguments, CompiledSignature, hand_back
from .._compile.executables import describe_host
from .._compile.program import CompiledModel, announce_compilation, compile_model
from .._logging import cpp_log, logger
from .._optimizer.device_optimizer import DeviceOptimizer, name_parameters
from .._options.simulator_options import read_extras
from .._weights.host_weights import (
    download_weights,
    fetch_other_owners,
    find_owner,
    move_shared_weights,
    share_weights,
    unwrap_model,
    upload_weights,
    wrap_model,
)
from .._weights.replica_parameters import PerReplicaParams
from .._weights.weight_owners import Owner, fetch
from ..enums import ConnectionType
from ..errors import createPoptorchError, native_error
from ..options import Options
from .device_target import Claim, claim_device, is_offline
from .engine_change import EngineChange
from .perf_counters import CallTimes, count_cycles
from .random_stream import RandomStream

__all__ = ["DeviceSession"]


class DeviceSession:
    """Owns the executable of one executor, its claim on IPUs, and the tensors that are on the device.

    Weights, optimizer state and random stream are kept twice, here and on the host. The session knows which copy is the
    newer one, and copies it where the other is read. An executor locks it against other threads. `model` is traced, and
    `user_model` is the user's object; `owner` is a training executor's hold on the user's tensors.
    """

    def __init__(self, model: nn.Module, user_model: nn.Module, options: Options, *, owner: Optional[Owner]) -> None:
        """Start without an executable; `options` are the executor's own."""
        self.model = model
        self.user_model = user_model
        self.options = options
        self.owner = owner
        self.is_training = owner is not None
        self.parser = ArgsParser(getattr(model, "forward", model))
        self.per_replica: PerReplicaParams = {}
        self.optimizer = DeviceOptimizer(options)
        self.random = RandomStream(options)
        self.compiled: Optional[CompiledModel] = None
        self.signature: Optional[CompiledSignature] = None
        self.is_attached = False
        self.host_weights_version = 0
        self.call_times: Optional[CallTimes] = None
        self.anchor_memory: Dict[str, torch.Tensor] = {}
        self.waits_for_engine = True
        self._engine_change: Optional[EngineChange] = None
        self._claim: Optional[Claim] = None
        self._logs_cycles = bool(options._Popart.options.get("instrumentWithHardwareCycleCounter"))
        self._shares_memory = self.is_training and read_extras(options).shares_memory
        self._warned_not_contiguous = False

    def __getstate__(self) -> Dict[str, Any]:
        # the copy of an executor continues with a stream of its own
        return {**self.__dict__, "random": copy.copy(self.random)}

    def require_compiled(self) -> CompiledModel:
        """Return the executable with its graph and state; `poptorch.Error` if there is none."""
        if self.compiled is None:
            raise createPoptorchError("Model has not been compiled or has been destroyed.")
        return self.compiled

    def _require_device(self) -> DeviceState:
        """Return the state of an attached device; `poptorch.Error` otherwise: nothing may be copied then."""
        state = self.require_compiled().state
        if not self.is_attached:
            raise createPoptorchError("Device is not attached")
        return state

    # -- compiling -----------------------------------------------------------------------------------------------------

    def compile(
        self,
        bound: BoundArguments,
        *,
        check_graph: Callable[[StepGraph], None] = lambda _graph: None,
        waits: Optional[bool] = None,
    ) -> None:
        """Compile for `bound`, and attach unless the device is offline; if `check_graph` refuses, nothing changes.

        Unless it `waits`, by default as the session does, engines are measured beside the training.
        """
        options = self.options
        announce_compilation(bound, options)
        self.wrap_user_model()
        if self.is_training:
            self.optimizer.require_own(name_parameters(self.user_model))
        waits = self.waits_for_engine if waits is None else waits
        host = describe_host(self.user_model, self.owner, self.optimizer, self.per_replica)
        compiled = compile_model(self.model, bound, options, host, check_graph, waits=waits)
        # not before: while the compilation could fail, the executable of before was still needed
        self.destroy()
        self.wrap_user_model()  # lazy parameters have a value now
        if options.connection_type == ConnectionType.Always:
            self._claim = claim_device(options, compiled.num_ipus)
        self.compiled, self.signature = compiled, CompiledSignature(bound)
        if self.is_training and compiled.obtained.background is not None:
            report = read_extras(options).report
            background = compiled.obtained.background
            self._engine_change = EngineChange(compiled, background, adopt=self._move_to, report=report)
        self.random.is_behind = False
        if not is_offline(options):
            self._take_device()

    def wrap_user_model(self) -> None:
        """Let the host's tensors fetch the trained values when they are read; only in training."""
        if self.owner is not None:
            wrap_model(self.user_model, self.owner)

    def destroy(self) -> None:
        """Drop the executable; in training, fetch the trained values and restore the model's own classes."""
        if self.compiled is None:
            return
        if self.owner is not None:
            # the device's memory goes with the executable
            self.owner.memory.end_sharing(keeps_memory=True)
            fetch((self.owner,))
            self.optimizer.destroy()
            if find_owner(self.user_model) is self.owner:
                unwrap_model(self.user_model)
        if self._engine_change is not None:
            self._engine_change.stop()
        self.compiled = self.signature = self.call_times = self._engine_change = None
        self._release_device()

    # -- the device ----------------------------------------------------------------------------------------------------

    def attach_again(self) -> None:
        """Take the device after `detach`; AssertionError for an offline one, `poptorch.Error` if it is attached."""
        self.require_compiled()
        if is_offline(self.options):
            raise AssertionError("Trying to attach to an offline device (ConnectionType.Never)")
        if self.is_attached:
            raise createPoptorchError("Device is already attached")
        self._take_device()

    def _take_device(self) -> None:
        """Take the device, and send it the weights, the optimizer and the random state."""
        compiled = self.require_compiled()
        if trouble.injections:
            trouble.strike(trouble.Moment.ATTACH, training=self.is_training, subject=self)
        if self._claim is None:  # else it has been held since the compilation
            self._claim = claim_device(self.options, compiled.num_ipus)
        try:
            self._note_that_host_is_current()
            self.send_weights()
            if self.is_training:
                self.optimizer.attach(name_parameters(self.user_model), compiled.state)
            self.is_attached = True
            self.random.send(compiled.state)
        except BaseException:
            self._release_device()
            raise

    def detach(self) -> None:
        """Fetch the device's state and release the device; raises `poptorch.Error` if it is not attached."""
        state = self._require_device()
        self.random.read(state)
        if self.owner is not None:
            fetch((self.owner,))
            self.optimizer.detach()
        self._release_device()

    def lose_device(self) -> None:
        """Detach as after a loss of the device: weights and state are those of the last copies."""
        state = self.require_compiled().state
        self._note_that_host_is_current()
        self.random.is_behind = False
        self._release_device()
        upload_weights(self.user_model, state)
        state.slots.clear()
        if self.optimizer.synced is not None:
            self.optimizer.synced.host_state_is_dirty = False

    def _move_to(self, state: DeviceState) -> None:
        """Continue with a state that has the same values in other tensors."""
        self.optimizer.move_to(state)
        if self.owner is not None:
            move_shared_weights(self.owner, state)

    def _release_device(self) -> None:
        """Release the IPUs; nothing is fetched."""
        self.is_attached = False
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def run(self, bound: BoundArguments) -> Any:
        """Run one call, nest the outputs as `forward` did; `poptorch.Error` for arguments unlike the compiled ones."""
        compiled, entered = self.require_compiled(), perf_counter()
        hosts, inputs = self.prepare(bound)
        if self._engine_change is not None and not self._engine_change.look(inputs, self.call_times):
            self._engine_change = None
        if trouble.injections:
            trouble.strike(trouble.Moment.CALL, training=self.is_training, subject=self)
        anchors = compiled.anchors
        if anchors is not None and anchors.observer is not None:
            anchors.observer.begin(compiled.plan)
        started = perf_counter()
        results = self._run_program(compiled, inputs)
        ended = perf_counter()
        if anchors is not None:
            self.anchor_memory = anchors.take(results, self.optimizer.read_hyper_parameters(), compiled.plan)
        if trouble.injections:
            trouble.strike(trouble.Moment.RESULT, training=self.is_training, subject=self, results=results)
        outputs = hand_back(compiled.graph, hosts, results)
        self.call_times = (entered, started, ended, perf_counter())
        if self._logs_cycles:
            cpp_log("info", f"Total number of IPU cycles: {count_cycles(self.call_times, self.options)}")
        return outputs

    def prepare(self, bound: BoundArguments) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
        """Return the tensors of `bound`, on the host and as the device gets them; the optimizer is up to date then."""
        signature = self.signature
        assert signature is not None
        signature.check(bound)
        hosts = bound.list_tensors(like=signature.arguments)
        inputs = [self._convert_input(tensor) for tensor in hosts]
        synced = self.optimizer.synced
        if synced is not None and synced.ipu_state_is_dirty:
            self._upload_optimizer_state()
        return hosts, inputs

    def _run_program(self, compiled: CompiledModel, inputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        """Run the program, and note which tensors are newer on the device afterwards."""
        optimizer, owner = self.optimizer, self.owner
        if owner is not None and self._shares_memory:
            # a device that is lost leaves the host with the weights of before, which it has to have
            if not trouble.injections and not owner.memory.is_shared:
                share_weights(self.user_model, owner, compiled.state)
            elif trouble.injections and owner.memory.is_shared:
                self.copy_weights_to_host()
        try:
            with shut_out_host_modes():
                return compiled.obtained.executable.run(
                    compiled.state,
                    [make_recordable(tensor) for tensor in inputs],
                    compiled.plan,
                    groups=optimizer.groups,
                    group_names=optimizer.group_names,
                )
        except FloatingPointError as error:
            raise native_error(f"Floating-point exception: {error}", kind="poplar_unknown_runtime_error") from error
        finally:
            # A run that fails half way has done its first iterations.
            self.random.is_behind = True
            if owner is not None:
                owner.is_ahead = True
                if optimizer.synced is not None:
                    optimizer.synced.host_state_is_dirty = True

    def _convert_input(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an input in the device's type and layout."""
        if tensor.device.type != "cpu":
            raise createPoptorchError(f"Inputs must be on the CPU, got a tensor on {tensor.device}")
        if not tensor.is_contiguous():
            if not self._warned_not_contiguous:
                self._warned_not_contiguous = True
                logger.warning("At least one input tensor is not contiguous: non-contiguous tensors will be converted.")
            tensor = tensor.contiguous()
        tensor = tensor.detach() if tensor.requires_grad else tensor
        return tensor.to(NARROWED[tensor.dtype]) if tensor.dtype in NARROWED else tensor

    # -- weights -------------------------------------------------------------------------------------------------------

    @property
    def is_ahead_of_host(self) -> bool:
        """Whether the device has trained since the host got its weights."""
        return self.owner is not None and self.owner.is_ahead

    def _note_that_host_is_current(self) -> None:
        if self.owner is not None:
            self.owner.is_ahead = False

    @torch.inference_mode(False)  # the host's tensors would be of that mode ever after
    def copy_weights_to_host(self) -> None:
        """Fetch all parameters and buffers; `poptorch.Error` without an executable and without the device."""
        state = self._require_device()
        # First, because looking at a wrapped tensor fetches what is out of date.
        self._note_that_host_is_current()
        if self.owner is not None:
            self.owner.memory.end_sharing()
        if not self.is_training:
            # Or the next read would replace the values fetched now by earlier ones.
            fetch_other_owners(self.user_model, self.owner)
        download_weights(self.user_model, state)
        if self.owner is not None:
            self.owner.version += 1
            self.host_weights_version = self.owner.version

    def copy_weights_to_device(self) -> None:
        """Send all parameters and buffers; trained values not yet fetched are lost, unless the host had no others."""
        self._require_device()
        if self.owner is not None and self.owner.memory.is_shared:
            self.copy_weights_to_host()
        self._note_that_host_is_current()
        self.optimizer.read_state()
        self.send_weights()

    def copy_named_buffers_to_device(self) -> None:
        """Send the buffers that `Options.updatableNamedBuffers` lists; `poptorch.Error` if it lists none."""
        state = self._require_device()
        names = self.options._Popart.options.get("updatableNamedBuffers")
        if not names:
            raise createPoptorchError("No named buffers marked as updatable via updatableNamedBuffers option")
        upload_weights(self.user_model, state, names=names)

    def send_weights(self) -> None:
        """Send the host's weights as they are, once the other executors that own some of them have brought theirs."""
        fetch_other_owners(self.user_model, self.owner)
        upload_weights(self.user_model, self.require_compiled().state)

    def read_replica_buffers(self) -> Dict[str, List[torch.Tensor]]:
        """Return copies of the buffers that replicas have of their own, by name one for each."""
        return self.require_compiled().state.read_replica_buffers()

    def write_replica_buffers(self, values: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Write the buffers that replicas have of their own, which a vendor's device does not allow."""
        self.require_compiled().state.write_replica_buffers(values)

    def follow_training_model(self, send: Callable[[], None]) -> None:
        """Let `send` bring an inference device up to date with the training executor that owns the model's weights."""
        fetch_trained = getattr(self.model, "copyWeightsToHostIfNeeded", None)
        if not callable(fetch_trained):
            return
        fetch_trained()
        trained = find_owner(self.model)
        if trained is not None and trained.version != self.host_weights_version:
            logger.debug("Implicit copyWeightsToDevice()")
            send()
            self.host_weights_version = trained.version

    def leave_weights_behind(self) -> None:
        """Keep the values that a collected executor trained; a garbage collection must not touch tensors."""
        if self.owner is None:
            return
        self.optimizer.leave_device()
        if self.compiled is not None and self.owner.is_ahead:
            tensors = {host.name: host.tensor for host in host_tensors(self.user_model)}
            self.owner.left_behind = (self.compiled.state, tensors)

    # -- optimizer and random stream -----------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Send the optimizer's settings, and a state that was loaded into it, to the device if it is attached."""
        self.optimizer.take(optimizer)
        if self.compiled is not None and self.is_attached:
            self.optimizer.upload_settings(name_parameters(self.user_model))
            self._upload_optimizer_state()

    def _upload_optimizer_state(self) -> None:
        synced = self.optimizer.synced
        if synced is not None and synced.ipu_state_is_dirty and synced.has_state():
            # The vendor's upload writes weights and state together.
            if self.owner is not None:
                fetch((self.owner,))
            self.send_weights()
        self.optimizer.upload_state()

    def read_random_state(self) -> Optional[List[int]]:
        """Return seed and state of the device's random stream; `poptorch.Error` without an executable."""
        state = self.require_compiled().state
        return self.random.read(state if self.is_attached else None)

    def set_random_state(self, words: Sequence[int]) -> None:
        """Continue the random stream from `words`, at once if the device is attached."""
        state = self.require_compiled().state
        self.random.keep(words)
        if self.is_attached:
            self.random.send(state)
