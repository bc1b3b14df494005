"""`PortedModel`: the user's model on its device, with the loss inside and the optimizer's step in every call."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ..adapters import (
    Backend,
    FixedBatchDataset,
    LossInForward,
    SchedulerBridge,
    check_ignore_label,
    default_optimizer,
    load_weights,
    note_batchnorm,
    notify,
    plain_state_dict,
    sync_hyper_parameters,
    to_ipu_dataloader,
    to_torch_state,
)
from ..adapters.labels import NO_LABELS, split_labels
from ..diagnostics import BatchError, DeviceError, Finding, caller_place
from ..lazy_modules import materialise_lazy_modules
from ..options import PortOptions, to_poptorch
from .executor_handle import ExecutorHandle
from .run_report import RunReport

__all__ = ["Port", "PortedInference", "PortedModel"]

logger = logging.getLogger("porting")

_CASTS = {"half": torch.float16, "float": torch.float32, "double": torch.float64, "bfloat16": torch.bfloat16}


@dataclass
class Port:
    """Everything that a ported model is made of."""

    model: nn.Module
    wrapped: LossInForward
    loss: Any
    label: Any
    backend: Backend
    options: PortOptions
    torch_optimizer: Optional[torch.optim.Optimizer]
    optimizer: Any
    findings: Tuple[Finding, ...] = ()


class PortedModel:
    """A model that trains on its device; `to_ipu` makes it.

    In training mode a call takes the model's arguments and the label, makes the optimizer's step, and returns
    `(output, loss)`; nothing else belongs into the loop, no `backward()` and no `step()`. After `eval()` the same
    call evaluates without changing a weight. The model's weights are those on the device whenever they are looked at.

    Attributes that are not found here are the user's model's.
    """

    def __init__(self, port: Port) -> None:
        """Keep `port`; nothing is compiled before the first batch is known."""
        self._port = port
        self.training = True
        options, cache = port.options, port.options.cache_dir
        self._vendor_options = {
            training: to_poptorch(options, port.backend.module, training=training) for training in (True, False)
        }
        self._cache = None if cache is None else str(cache)
        self._modes: Optional[List[bool]] = None
        self._train_handle = self._handle("training", self._make_training, self._modes_noted)
        self._inference: Dict[bool, PortedInference] = {}
        self._warned_of_host_step = False
        if port.torch_optimizer is not None and hasattr(port.torch_optimizer, "register_step_pre_hook"):
            port.torch_optimizer.register_step_pre_hook(self._on_host_step)

    # -- running -----------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Train on one combined batch and return `(output, loss)`; after `eval()`, evaluate on it.

        The batch has micro-batch x accumulation x replicas x device iterations rows. The first call compiles. Raises
        BatchError for a batch unlike the one compiled for (B001-B003) or that cannot be cut (B004), CaptureError for a
        model that no static graph can hold, DeviceError D006 for a training call without labels.
        """
        if not self.training:
            return self._evaluator(self._has_labels(args, kwargs))(*args, **kwargs)
        if not self._train_handle.is_compiled:
            self._check_first_batch(args, kwargs)
        else:
            self._sync_settings()
        self._take_device(self._train_handle)
        return self._train_handle.run(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> float:
        """Compile the training step for batches like this one and return the seconds it took; no weight changes.

        Returns 0.0 when it is compiled already.
        """
        if not self._train_handle.is_compiled:
            self._check_first_batch(args, kwargs)
        self._take_device(self._train_handle)
        return self._train_handle.compile(args, kwargs)

    def inference(self) -> PortedInference:
        """Return the model for inference: it shares the weights, runs in eval mode and never changes anything."""
        return self._evaluator(False)

    def _evaluator(self, with_labels: bool) -> PortedInference:
        if with_labels not in self._inference:
            self._inference[with_labels] = PortedInference(self, "evaluation" if with_labels else "inference")
        return self._inference[with_labels]

    def train(self, mode: bool = True) -> PortedModel:
        """Let calls train (or, with False, evaluate) and return this ported model.

        Before compilation the modules switch with it, as in torch; afterwards the compiled step keeps the modes it was
        compiled with (Dropout, BatchNorm), and a change of them is reported (D005).
        """
        self.training = mode
        if not self._train_handle.is_compiled:
            self._port.wrapped.train(mode)
        elif mode and self._modes is not None and self._modes != self._current_modes():
            notify(
                Finding(
                    "D005",
                    message="modules changed between train and eval mode after the training step was compiled",
                    place=caller_place(),
                    help="call `ported.destroy()` to compile again with the new modes",
                )
            )
        return self

    def eval(self) -> PortedModel:
        """Let calls evaluate without changing anything; `train()` switches back."""
        return self.train(False)

    def loss_of(self, returned: Any) -> Any:
        """Return the loss inside what a training call returned."""
        return self._port.wrapped.loss_of(returned)

    # -- data, optimizer, schedule ---------------------------------------------------------------------------------

    def dataloader(
        self,
        source: Any,
        *,
        batch_size: Optional[int] = None,
        shuffle: Optional[bool] = None,
        drop_last: Optional[bool] = None,
        num_workers: Optional[int] = None,
        training: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Return the backend's DataLoader of combined batches for `source`, a torch DataLoader or a dataset.

        `batch_size` is the micro-batch: by default the options' when it is more than 1, then the source's own. With
        `training=False` the batches are those of inference, without accumulation. See `to_ipu_dataloader` for the
        order of samples and for what happens to those that do not fill a call; padding by a `FixedBatchDataset` is
        checked against the loss (B007) and for BatchNorm (B008).
        """
        if batch_size is None and (self._port.options.micro_batch > 1 or not hasattr(source, "batch_size")):
            batch_size = self._port.options.micro_batch
        dataset = source.dataset if isinstance(source, torch.utils.data.DataLoader) else source
        if isinstance(dataset, FixedBatchDataset) and dataset.num_padding and training:
            for finding in (
                check_ignore_label(self._port.loss, dataset.ignore_label),
                note_batchnorm(self._port.model),
            ):
                if finding is not None:
                    notify(finding)
        return to_ipu_dataloader(
            source,
            self._vendor_options[training].clone(),
            backend=self._port.backend.module,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            num_workers=num_workers,
            **kwargs,
        )

    @property
    def optimizer(self) -> Any:
        """The device's optimizer, which the executor really uses."""
        return self._port.optimizer

    def optimizer_state_dict(self) -> Dict[str, Any]:
        """Return the optimizer's state as the torch optimizer given to `to_ipu` would have it; it loads there."""
        port = self._port
        if port.torch_optimizer is None:
            return dict(port.optimizer.state_dict())
        return to_torch_state(port.optimizer.state_dict(), port.torch_optimizer, port.model)

    def scheduler(self, scheduler: Any) -> SchedulerBridge:
        """Connect a torch learning-rate scheduler of the optimizer given to `to_ipu`: its steps reach the device."""
        port = self._port
        return SchedulerBridge(
            scheduler,
            source=port.torch_optimizer if port.torch_optimizer is not None else port.optimizer,
            target=port.optimizer,
            upload=self._upload_settings,
            is_compiled=lambda: self._train_handle.is_compiled,
            has_trained=lambda: self._train_handle.record.num_calls > 0,
        )

    def _sync_settings(self) -> None:
        """Let the device see what was changed on the host's optimizer since the last call."""
        port = self._port
        if port.torch_optimizer is not None and port.torch_optimizer is not port.optimizer:
            if sync_hyper_parameters(port.torch_optimizer, port.optimizer, is_compiled=True):
                self._upload_settings(port.optimizer)

    def _upload_settings(self, optimizer: Any) -> None:
        if self._train_handle.executor is not None:
            self._train_handle.executor.setOptimizer(optimizer)

    def _on_host_step(self, *_args: Any) -> None:
        if not self._warned_of_host_step and self._train_handle.record.num_calls:
            self._warned_of_host_step = True
            notify(
                Finding(
                    "O007",
                    message="`optimizer.step()` does nothing: the device made the step inside the call",
                    place=caller_place(),
                    help="remove `zero_grad()`, `backward()` and `step()` from the loop",
                )
            )

    # -- weights -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> Any:
        """Return the weights as the device has them: plain tensors under the model's own names."""
        return plain_state_dict(self._port.model)

    def load_state_dict(self, state_dict: Any) -> PortedModel:
        """Load weights (a state dictionary, or a checkpoint's path) into the model and onto the device.

        All of them or none: raises CheckpointError K001 for a damaged file and K002, with the differences listed, for
        weights of another model.
        """
        load_weights(self._port.model, state_dict)
        for handle in self._handles():
            if handle.is_attached:
                handle.executor.copyWeightsToDevice()
        return self

    # -- device --------------------------------------------------------------------------------------------------------

    def attach(self) -> PortedModel:
        """Take the device again for training."""
        self._take_device(self._train_handle)
        self._train_handle.attach()
        return self

    def detach(self) -> PortedModel:
        """Give the device free; weights and optimizer state come to the host first. The next call takes it again."""
        for handle in self._handles():
            handle.detach()
        return self

    def destroy(self) -> None:
        """Drop all executables; the weights and the optimizer's state stay, and the next call compiles anew."""
        for handle in self._handles():
            handle.destroy()
        state = self._port.optimizer.state_dict() if self._port.optimizer is not None else {}
        if state.get("ipu_state") is not None:
            # the next executable starts with this state only if it counts as loaded
            self._port.optimizer.set_state_dict({"ipu_state": state["ipu_state"], "ipu_param": {}})

    def report(self) -> RunReport:
        """Tell which device ran, how often, when and how long it compiled, and whether a cache was hit."""
        port, options = self._port, self._port.options
        optimizer = port.optimizer
        rates = [] if optimizer is None else [f"{float(group['lr']):g}" for group in optimizer.param_groups]
        return RunReport(
            device=port.backend.device_description,
            backend=f"{port.backend.name} {getattr(port.backend.module, '__version__', '')}".strip(),
            is_simulator=port.backend.is_simulator,
            optimizer="not made yet" if optimizer is None else f"{type(optimizer).__name__}, lr {', '.join(rates)}",
            samples_per_step=(
                f"micro-batches x {options.accumulation} accumulation x {options.replicas} replicas, "
                f"{options.device_iterations} steps a call, {options.precision}"
            ),
            executors=tuple(handle.record for handle in self._handles()),
            findings=port.findings,
        )

    def to(self, *args: Any, **kwargs: Any) -> PortedModel:
        """Return this ported model for "cpu" and "ipu"; raise DeviceError D003 for other devices and for types."""
        wanted = [value for value in (*args, *kwargs.values()) if value is not None and not isinstance(value, bool)]
        for value in wanted:
            is_device = isinstance(value, (str, torch.device))
            if not is_device or torch.device(value).type not in ("cpu", "ipu"):
                raise self._cannot_move(f"to({value!r})")
        return self

    def cpu(self) -> PortedModel:
        """Return this ported model: weights come to the host whenever they are looked at."""
        return self

    def cuda(self, *_args: Any, **_kwargs: Any) -> PortedModel:
        """Refuse: the model is on its device."""
        raise self._cannot_move("cuda()")

    def half(self) -> PortedModel:
        """Return this ported model if its weights are float16 already; raise DeviceError D003 otherwise."""
        return self._cast("half")

    def float(self) -> PortedModel:
        """Return this ported model if its weights are float32 already; raise DeviceError D003 otherwise."""
        return self._cast("float")

    def double(self) -> PortedModel:
        """Refuse, in general: the device has no float64."""
        return self._cast("double")

    def bfloat16(self) -> PortedModel:
        """Refuse, in general: the device has no bfloat16."""
        return self._cast("bfloat16")

    def _cast(self, name: str) -> PortedModel:
        floats = [tensor for tensor in self._port.model.parameters() if tensor.is_floating_point()]
        if any(tensor.dtype != _CASTS[name] for tensor in floats):
            raise self._cannot_move(f"{name}()")
        return self

    def _cannot_move(self, call: str) -> DeviceError:
        return DeviceError.of(
            "D003",
            message=f"`{call}` would take the model off its device or change its type",
            place=caller_place(),
            notes=("on a plain executor this call returns the bare module, and training goes on on the host",),
            help="choose the device with `to_ipu(..., device=...)` and the precision with `PortOptions(precision=...)`",
        )

    # -- the rest of the model -----------------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The user's module, with the weights of the device."""
        return self._port.model

    @property
    def options(self) -> PortOptions:
        """The options that the model was ported with."""
        return self._port.options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_port" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._port.model, name)
        if not callable(value) or isinstance(value, (nn.Module, torch.Tensor)):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            return self if result is self._port.model else result

        return call

    def __repr__(self) -> str:
        return f"PortedModel({self._port.backend.device_description}):\n{self._port.model!r}"

    def __reduce__(self) -> Any:
        raise TypeError("a PortedModel cannot be pickled: save `ported.state_dict()`")

    # -- making executors ------------------------------------------------------------------------------------------------

    def _handle(self, name: str, make: Any, compiling: Any) -> ExecutorHandle:
        return ExecutorHandle(
            name,
            make,
            cache_dir=self._cache,
            keeps_executables=not self._port.backend.is_simulator,
            compiling=compiling,
        )

    def _handles(self) -> List[ExecutorHandle]:
        return [self._train_handle, *(inference._handle for inference in self._inference.values())]

    def _make_training(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        port = self._port
        materialise_lazy_modules(port.wrapped, args, kwargs)
        if port.optimizer is None:
            port.optimizer = default_optimizer(port.model, backend=port.backend.module)
            logger.warning("no optimizer was given: the device uses its default, SGD with a learning rate of 0.01")
        elif port.torch_optimizer is not None and port.torch_optimizer is not port.optimizer:
            sync_hyper_parameters(port.torch_optimizer, port.optimizer, is_compiled=False)
        return port.backend.module.trainingModel(
            port.wrapped, self._vendor_options[True].clone(), optimizer=port.optimizer
        )

    @contextmanager
    def _modes_noted(self) -> Iterator[None]:
        self._modes = self._current_modes()
        yield

    def _current_modes(self) -> List[bool]:
        return [module.training for module in self._port.model.modules()]

    def _take_device(self, handle: ExecutorHandle) -> None:
        """Let another executor of this model give the device free: one device serves all of them in turn."""
        for other in self._handles():
            if other is not handle:
                other.detach()

    def _has_labels(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        if self._port.loss is None:
            return False
        split = split_labels(self._port.model.forward, args, kwargs, label=self._port.label)
        return split.labels is not NO_LABELS

    def _check_first_batch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        port = self._port
        if port.loss is not None and not self._has_labels(args, kwargs):
            raise DeviceError.of(
                "D006",
                message="a training call got no labels",
                place=caller_place(),
                label="this call",
                help="pass them, `ported(inputs, labels)`, or use `ported.inference()(inputs)`",
            )
        if port.options.micro_batch > 1:
            _check_rows(port.options, args, kwargs)


def _check_rows(options: PortOptions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] != options.samples_per_call:
            raise BatchError.of(
                "B001",
                message=f"the batch has {value.shape[0]} rows, the options ask for {options.samples_per_call}",
                place=caller_place(),
                label="this call",
                notes=(
                    f"rows = {options.micro_batch} micro-batch x {options.accumulation} accumulation x "
                    f"{options.replicas} replicas x {options.device_iterations} device iterations",
                ),
                help="take batches from `ported.dataloader(...)`, or change `micro_batch`",
            )


class PortedInference:
    """A ported model for inference: call it with the model's arguments (and labels, to get the loss as well)."""

    def __init__(self, ported: PortedModel, name: str) -> None:
        """Share the weights of `ported`; nothing is compiled before the first call."""
        self._ported = ported
        self._handle = ported._handle(name, self._make, self._eval_mode)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output for one batch; the first call compiles. No weight or buffer changes."""
        self._ported._take_device(self._handle)
        return self._handle.run(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> float:
        """Compile for batches like this one and return the seconds it took."""
        self._ported._take_device(self._handle)
        return self._handle.compile(args, kwargs)

    def destroy(self) -> None:
        """Drop the executable; the next call compiles anew, for any batch."""
        self._handle.destroy()

    def _make(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        port = self._ported._port
        materialise_lazy_modules(port.wrapped, args, kwargs)
        view = port.wrapped.for_inference()
        return port.backend.module.inferenceModel(view, self._ported._vendor_options[False].clone())

    @contextmanager
    def _eval_mode(self) -> Iterator[None]:
        """Compile in eval mode, then give every module its mode back."""
        modes = [(module, module.training) for module in self._ported._port.model.modules()]
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            for module, training in modes:
                module.training = training

    def __repr__(self) -> str:
        return f"PortedInference of {self._ported!r}"
