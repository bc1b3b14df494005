"""PopTorch's API once more, by other means than the simulator: plain eager PyTorch, one micro-batch after the other.

It is literal and slow, knows only what ports may use, and refuses every name that PopTorch does not have. It stands in
for hardware in tests: what trains here and on the simulator alike depends on no detail of either.
"""

from __future__ import annotations

import contextlib
import copy
import enum
from typing import Any, Iterator, List

import torch

from . import optim
from .buffers import ReplicaBuffers
from .half_casts import HalfCasts
from .options import (
    Options,
    OutputMode,
    PipelinedExecution,
    ReductionType,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)
from .tensors import cut, flatten, join, map_tensors

__all__ = [
    "AutoStage",
    "BeginBlock",
    "Block",
    "DataLoader",
    "DataLoaderMode",
    "Options",
    "OutputMode",
    "PipelinedExecution",
    "ReductionType",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "optim",
    "recomputationCheckpoint",
    "removeBlocks",
    "trainingModel",
]

__version__ = "3.3.0+literal"

_marked_losses: List[torch.Tensor] = []
_is_running = False
blocks_seen: List[Any] = []
"""The IPUs of all blocks that began while a model ran."""
num_calls = 0
"""Calls of all executors."""


class AutoStage(enum.Enum):
    """How blocks become stages."""

    SameAsIpu = 0
    AutoIncrement = 1


class DataLoaderMode(enum.Enum):
    """Where batches are made."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


def ipuHardwareIsAvailable(version: Any = None) -> bool:
    """Claim that there is an IPU."""
    return True


def ipuHardwareVersion() -> int:
    """Claim that it is a Bow or GC200."""
    return 2


def isRunningOnIpu() -> bool:
    """Tell whether a model runs at the moment."""
    return _is_running


def identity_loss(x: torch.Tensor, reduction: str = "none") -> torch.Tensor:
    """Mark a loss: the last one that is marked is differentiated."""
    reduced = {"none": lambda: x * 1.0, "mean": x.mean, "sum": x.sum}[reduction]()
    _marked_losses.append(reduced)
    return reduced


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Return what it is given."""
    return tensors[0] if len(tensors) == 1 else tensors


class Block:
    """A part of `forward` that lies on an IPU."""

    def __init__(self, user_id: Any = None, ipu_id: Any = None) -> None:
        self._ipu = ipu_id

    def __enter__(self) -> Block:
        blocks_seen.append(self._ipu)
        return self

    def __exit__(self, *error: Any) -> None:
        return None


class _BlockHook:
    def __init__(self, ipu: Any) -> None:
        self._ipu = ipu

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        if _is_running:
            blocks_seen.append(self._ipu)


def BeginBlock(layer_to_call: torch.nn.Module, user_id: Any = None, ipu_id: Any = None) -> torch.nn.Module:
    """Begin a block wherever the layer is called."""
    layer_to_call.register_forward_pre_hook(_BlockHook(ipu_id))
    return layer_to_call


def removeBlocks(module: torch.nn.Module) -> None:
    """Take all blocks of a model away."""
    for layer in module.modules():
        for key, hook in list(layer._forward_pre_hooks.items()):
            if isinstance(hook, _BlockHook):
                del layer._forward_pre_hooks[key]


class _Executor:
    """A model and its options; a call cuts the batch and runs the micro-batches in turn."""

    # it draws torch's numbers, and has no stream of its own
    rng_state: Any = None

    def __init__(self, model: torch.nn.Module, options: Any, optimizer: Any, *, trains: bool) -> None:
        self._model, self._trains = model, trains
        self.options = options if options is not None else Options()
        self._optimizer = optimizer
        if trains and optimizer is None:
            self._optimizer = optim.SGD(model.parameters(), lr=0.01)
        self._signature: Any = None
        self._buffers: Any = None
        self._is_attached = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_model"], name)

    def isCompiled(self) -> bool:
        return self._signature is not None

    def isAttachedToDevice(self) -> bool:
        return self._is_attached

    def attachToDevice(self) -> None:
        self._is_attached = True

    def detachFromDevice(self) -> None:
        self._is_attached = False

    def destroy(self) -> None:
        self._signature, self._is_attached = None, False

    def copyWeightsToHost(self) -> None:
        """Do nothing: there is one copy of the weights."""

    copyWeightsToHostIfNeeded = copyWeightsToDevice = copyNamedBuffersToDevice = copyWeightsToHost

    def getTensorNames(self) -> List[str]:
        return []

    def setOptimizer(self, optimizer: Any) -> None:
        if not isinstance(optimizer, optim.Optimizer):
            raise TypeError("only PopTorch's optimizers run on the device")
        self._optimizer = optimizer

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Run `forward` once on a micro-batch, as tracing does, and leave weights and random stream as they were."""
        some_args, some_kwargs = self._cut(args, kwargs)[0]
        state = copy.deepcopy(self._model.state_dict())
        with _running(), torch.random.fork_rng(devices=[]), HalfCasts(), torch.no_grad():
            self._model(*some_args, **some_kwargs)
        self._model.load_state_dict(state)
        self._buffers = ReplicaBuffers(self._model, self.options.replication_factor)
        self._signature = _signature((args, kwargs))
        self._is_attached = True

    @property
    def _per_step(self) -> int:
        return self.options.replication_factor * (self.options.Training.gradient_accumulation if self._trains else 1)

    def _cut(self, args: Any, kwargs: Any) -> List[Any]:
        return cut((args, kwargs), num_slices=self._per_step * self.options.device_iterations)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        global num_calls
        num_calls += 1
        if self._signature is None:
            self.compile(*args, **kwargs)
        if _signature((args, kwargs)) != self._signature:
            raise ValueError("the model was compiled for tensors of other shapes or types")
        outputs = []
        with _running():
            for index, (some_args, some_kwargs) in enumerate(self._cut(args, kwargs)):
                with self._buffers.turn_of(index % self.options.replication_factor):
                    outputs.append(self._run(some_args, some_kwargs))
                if self._trains and (index + 1) % self._per_step == 0:
                    self._update()
        return self._returned(outputs)

    def _run(self, args: Any, kwargs: Any) -> Any:
        _marked_losses.clear()
        with HalfCasts(), torch.set_grad_enabled(self._trains):
            output = self._model(*args, **kwargs)
        if self._trains:
            loss = _marked_losses[-1].sum()
            (loss / self._per_step if self.options.Training.averages else loss).backward()
        return map_tensors(output, lambda tensor: tensor.detach())

    def _update(self) -> None:
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        if self._optimizer.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(parameters, self._optimizer.max_grad_norm)
        # the optimizer's state and arithmetic are of single precision, whatever the weights are
        halves = [parameter for parameter in parameters if parameter.dtype == torch.float16]
        for parameter in halves:
            gradient, parameter.grad = parameter.grad, None
            parameter.data = parameter.data.float()
            parameter.grad = None if gradient is None else gradient.float()
        self._optimizer.step()
        for parameter in self._model.parameters():
            parameter.grad = None
        for parameter in halves:
            parameter.data = parameter.data.half()

    def _returned(self, outputs: List[Any]) -> Any:
        mode = OutputMode(self.options.output_mode)
        if mode is OutputMode.Default:
            mode = OutputMode.Final if self._trains else OutputMode.All
        if mode is OutputMode.Final:
            outputs = outputs[-self.options.replication_factor :]
        if mode is OutputMode.EveryN:
            outputs = outputs[self.options.output_return_period - 1 :: self.options.output_return_period]
        if len(outputs) == 1:
            return outputs[0]
        return join(outputs, _summed if mode is OutputMode.Sum else _concatenated)


def _signature(values: Any) -> List[Any]:
    return [(tuple(tensor.shape), tensor.dtype) for tensor in flatten(values)]


def _concatenated(tensors: List[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(1) if tensor.dim() == 0 else tensor for tensor in tensors])


def _summed(tensors: List[torch.Tensor]) -> torch.Tensor:
    return torch.stack(tensors).sum(dim=0)


@contextlib.contextmanager
def _running() -> Iterator[None]:
    global _is_running
    _is_running = True
    try:
        yield
    finally:
        _is_running = False


def trainingModel(model: torch.nn.Module, options: Any = None, optimizer: Any = None) -> Any:
    """Wrap a model whose `forward` marks its loss: a call is a training step."""
    return _Executor(model, options, optimizer, trains=True)


def inferenceModel(model: torch.nn.Module, options: Any = None) -> Any:
    """Wrap a model: a call returns its output."""
    return _Executor(model, options, None, trains=False)


class DataLoader(torch.utils.data.DataLoader):
    """A loader of combined batches."""

    def __init__(
        self,
        options: Any,
        dataset: Any,
        batch_size: int = 1,
        shuffle: Any = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: Any = None,
        auto_distributed_partitioning: bool = True,
        mode: Any = DataLoaderMode.Sync,
        async_options: Any = None,
        rebatched_worker_size: Any = None,
        batch_sampler: Any = None,
        **settings: Any,
    ) -> None:
        self._options = options
        per_step = options.replication_factor * options.Training.gradient_accumulation
        self._combined_batch_size = batch_size * per_step * options.device_iterations
        settings = {key: value for key, value in settings.items() if value is not None}
        if settings.get("sampler") is None:
            settings["shuffle"] = bool(shuffle)
        super().__init__(
            dataset, batch_size=self._combined_batch_size, num_workers=num_workers, drop_last=drop_last, **settings
        )

    @property
    def combinedBatchSize(self) -> int:
        return self._combined_batch_size

    @property
    def options(self) -> Any:
        return self._options

    def terminate(self) -> None:
        """Do nothing: there is no other process to end."""
