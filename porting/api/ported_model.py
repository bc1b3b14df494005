"""Define `PortedModel`, the user's model on its device, with the loss inside and a step of the optimizer in every call.

`to_ipu` makes it, and programs train with it.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from .. import adapters
from ..adapters.backend_protocol import BackendOptimizer
from ..adapters.replica_buffers import send_optimizer
from ..diagnostics import BatchError
from ..structure import Structure, make_call_arguments
from ..support.function_modes import Args, Kwargs
from ..support.uncompiled_code import keep_class_uncompiled
from ..torch_insides.modules import EVERY_FORWARD_HOOK, EVERY_FORWARD_PRE_HOOK, IncompatibleKeys
from .batch import check_first_batch, check_labels, has_labels, make_dataloader, take_first
from .call_notes import note_loss
from .compilation import destroy_unseen
from .gradients import read_gradients
from .moves import FixedModule, refuse_assignment
from .nan_search import KeptCall, search_call
from .optimizer import PortOptimizer, refuse_backward, say_host_step_is_needless
from .port import Port, PortFindings
from .run_report import RunReport, make_report
from .runner import Runner
from .runners import PortedInference, Runners
from .training_state import load_training, save_training

if TYPE_CHECKING:
    from ..adapters import Checkpoint, SchedulerBridge
    from ..adapters.checkpoints import Path
    from ..nan_search import NotFinite

__all__ = ["PortedModel"]


@keep_class_uncompiled
class PortedModel(FixedModule):
    """A model that trains on its device; `to_ipu` makes it.

    In training mode a call takes the model's arguments and the label, makes the optimizer's step, and returns
    `(output, loss)`; nothing else belongs into the loop, no `backward()` and no `step()`. After `eval()` the same
    call evaluates without changing a weight. The model's weights are those on the device whenever they are looked at,
    and stay with the user's own module when the ported model is gone.

    It is a module with the parameters, buffers and sub-modules of the user's model, under their own names, and can be a
    part of another one. Forward hooks run around its calls. Attributes that are not found here are the user's model's.
    """

    def __init__(self, port: Port, findings: PortFindings, optimizer: PortOptimizer) -> None:
        """Keep what `to_ipu` has put together; nothing is compiled before the first batch is known."""
        super().__init__(port)
        self._findings = findings
        self._optimizer = optimizer
        self._runners = Runners(port, findings, optimizer)
        self.training = True
        self._find_loss = port.wrapped.loss_of
        self._brings_labels: Dict[Tuple[int, Tuple[str, ...]], bool] = {}
        self._waiting: List[Any] = []
        optimizer.watch(is_on_device=self._runners.is_training_compiled)
        # what has been trained comes to the host even if nobody keeps the ported model
        weakref.finalize(self, destroy_unseen, self._runners.destroy).atexit = False

    # -- running ------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Train on one combined batch and return `(output, loss)`; after `eval()`, evaluate on it.

        The batch has micro-batch x accumulation x replicas x device iterations rows. The first call compiles. Raises
        BatchError for a batch unlike the one compiled for (B001-B003) or that cannot be cut (B004), CaptureError for a
        model that no static graph can hold, DeviceError D006 for a training call without labels.
        """
        if self._forward_hooks or self._forward_pre_hooks or EVERY_FORWARD_HOOK or EVERY_FORWARD_PRE_HOOK:
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Do what a call does, without its hooks; the plain forward on the host is `ported.model.forward`."""
        if not self.training:
            return self._find_evaluator(args, kwargs).run(args, kwargs)
        runner = self._runners.training
        if runner.has_executable():
            self._optimizer.sync(self._send_settings)
        if self._port.options.max_executables > 1:
            runner = self._runners.select_training(args, kwargs)
        if not runner.has_executable():
            self._prepare_compilation(args, kwargs)
        try:
            returned = runner.run(args, kwargs)
        except BatchError as error:
            if error.code == "B003":
                check_labels(self._port, args, kwargs)
            raise
        self._optimizer.note_step()
        loss = self._find_loss(returned)
        loss.backward = refuse_backward
        # it has come to the host with the results; a sum is finite only if each of its parts is
        value = loss.item() if loss.numel() == 1 else loss.double().sum().item()
        if not math.isfinite(value):
            steps = self._port.options.device_iterations
            note_loss(value, runner.record, self._findings, steps_per_call=steps)
        return returned

    def compile(self, *args: Any, **kwargs: Any) -> float:  # type: ignore[override]
        """Compile for batches like this one and return the seconds it took; no weight, state or generator changes.

        Returns 0.0 when it is compiled already, and raises what a call would. After `eval()` it is the evaluation that
        is compiled. With `engine="auto"` the simulator measures engines now, which a call does beside the training.
        """
        return self._compile_for(args, kwargs, waits=True)

    def warm_up(self, loader: Iterable[Structure]) -> float:
        """Compile for batches like the first one of `loader`, and return the seconds; the training begins as without.

        No random stream is moved on, and no engine is measured. Raises what `compile` does, OptionError P002 for an
        iterator, and BatchError B005 for a loader without a batch.
        """
        args, kwargs = make_call_arguments(take_first(loader))
        return self._compile_for(args, kwargs, waits=False)

    def _compile_for(self, args: Args, kwargs: Kwargs, *, waits: bool) -> float:
        if not self.training:
            return self._find_evaluator(args, kwargs).compile(args, kwargs, waits=waits)
        runner = self._runners.select_training(args, kwargs)
        if not runner.has_executable():
            self._prepare_compilation(args, kwargs)
        return runner.compile(args, kwargs, waits=waits)

    def inference(self) -> PortedInference:
        """Return the model for inference: it shares the weights, runs in eval mode and never changes anything."""
        return PortedInference(self, self._runners)

    def train(self, mode: bool = True) -> PortedModel:
        """Let calls train (or, with False, evaluate) and return this ported model.

        Before compilation the modules switch with it, as in torch; afterwards the compiled step keeps the modes it was
        compiled with (Dropout, BatchNorm), and a change of them is reported (D005).
        """
        self.training = mode
        if not self._runners.is_training_compiled():
            self._port.wrapped.train(mode)
        elif mode:
            self._runners.training.say_late_changes()
        return self

    def eval(self) -> PortedModel:
        """Let calls evaluate without changing anything; `train()` switches back."""
        return self.train(False)

    def loss_of(self, returned: Structure) -> Any:
        """Return the loss inside what a training call returned."""
        return self._find_loss(returned)

    def _prepare_compilation(self, args: Args, kwargs: Kwargs) -> None:
        """Check what only the first batch can tell, and note the settings that the compilation begins with."""
        check_first_batch(self._port, args, kwargs)
        self._optimizer.prepare()

    def _find_evaluator(self, args: Args, kwargs: Kwargs) -> Runner:
        key = (len(args), tuple(kwargs))
        if key not in self._brings_labels:
            self._brings_labels[key] = self._port.loss is None or has_labels(self._port, args, kwargs)
        return self._runners.named("evaluation" if self._brings_labels[key] else "inference", args, kwargs)

    # -- data, optimizer, schedule ------------------------------------------------------------------------------------

    def dataloader(
        self,
        source: object,
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
        loader = make_dataloader(
            self._port,
            source,
            training=training,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            num_workers=num_workers,
            **kwargs,
        )
        if training and hasattr(loader, "waiting"):
            self._waiting.append(loader.waiting)
        return loader

    @property
    def optimizer(self) -> Any:
        """The device's optimizer, which the executor really uses."""
        return self._optimizer.require()

    def optimizer_state_dict(self) -> Dict[str, Any]:
        """Return the optimizer's state as the torch optimizer given to `to_ipu` would have it; it loads there.

        Loading it into that optimizer while the model is ported hands it to the device, too.
        """
        return self._optimizer.state_dict()

    def scheduler(self, scheduler: torch.optim.lr_scheduler.LRScheduler) -> SchedulerBridge:
        """Connect a torch learning-rate scheduler of the optimizer given to `to_ipu`: its steps reach the device."""
        optimizer = self.optimizer
        bridge = adapters.SchedulerBridge(
            scheduler,
            source=self._optimizer.require_users(),
            target=optimizer,
            upload=lambda changed: self._optimizer.upload(changed, self._send_settings),
            is_compiled=self._runners.is_training_compiled,
            has_trained=lambda: self._runners.training.record.num_calls > 0,
        )
        self._optimizer.connect(bridge)
        return bridge

    def gradients(self, iteration: int = -1) -> Dict[str, torch.Tensor]:
        """Return the gradients that an optimizer step of the last call used, by parameter; the last one's by default.

        They are those of the loss, joined over micro-batches as the options say and without loss scaling, as `.grad` is
        in plain PyTorch. `iteration` is 0 for the first step of the call and -1 for its last. Raises DeviceError D009
        unless the port was made with `PortOptions(keep_gradients=True)` and called, OptionError P002 for a step that a
        call does not make.
        """
        return read_gradients(self._port, self._optimizer.device, self._runners.training.executor, iteration)

    def find_nan(self, batch: Structure) -> Optional[NotFinite]:
        """Return the first value of a call with `batch` that is not finite, with its place; None if all are finite.

        The call starts from the present weights and changes nothing: no weight, no state of the optimizer, no buffer,
        no generator. `batch` is a combined batch as a loader yields it. After `eval()` it is the evaluation that is
        looked at. It takes several times as long as a call. Raises what a call would.
        """
        args, kwargs = make_call_arguments(batch)
        return search_call(self._port, self.keep_call(*args, **kwargs), args, kwargs, trains=self.training)

    def keep_call(self, *args: Any, **kwargs: Any) -> KeptCall:
        """Return all that a call with these arguments would begin with, for looking at it without making it.

        On the simulator that is a copy of the device, on which the call can be replayed. Raises what a call would.
        """
        self._compile_for(args, kwargs, waits=False)
        if self.training:
            self._optimizer.sync(self._send_settings)
            runner = self._runners.select_training(args, kwargs)
        else:
            runner = self._find_evaluator(args, kwargs)
        return runner.keep_call(args, kwargs)

    def zero_grad(self, *_args: object, **_kwargs: object) -> None:
        """Do nothing but say (O007) that a training call needs no `zero_grad()`."""
        say_host_step_is_needless("`zero_grad()` does nothing")

    def _send_settings(self, optimizer: BackendOptimizer) -> None:
        executor = self._runners.training.executor
        if executor is not None:
            if self._port.options.replicas > 1:
                send_optimizer(self._port, executor, optimizer)
            executor.setOptimizer(optimizer)

    # -- weights ------------------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights as the device has them: plain tensors under the model's own names.

        A module around this one asks with the arguments of torch's `state_dict`, and gets what torch gives it.
        """
        model = self._port.model
        return model.state_dict(*args, **kwargs) if args or kwargs else adapters.plain_state_dict(model)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights (a state dictionary, or a checkpoint's path) into the model and onto the device.

        All of them or none: raises CheckpointError K001 for a damaged file and K002, with the differences listed, for
        weights of another model. With `strict=False` a state dictionary may have other names, as in torch. Returns
        torch's lists of missing and unexpected names. OptionError P002 for `assign`, which would exchange the tensors.
        """
        refuse_assignment(assign)
        if strict:
            adapters.load_weights(self._port.model, state_dict)
            keys = IncompatibleKeys([], [])
        else:
            adapters.check_shapes(self._port.model, state_dict)
            keys = self._port.model.load_state_dict(state_dict, strict=False)
        self.copy_weights_to_device()
        return keys

    def copy_weights_to_host(self) -> None:
        """Fetch what was trained, as any look at the weights does."""
        self._runners.training.copy_weights_to_host()

    def copy_weights_to_device(self) -> None:
        """Send the host's weights to the device, after they were changed in place there.

        What was trained is never lost by that: looking at the weights on the host fetches it first.
        """
        self._runners.send_weights()

    def apply(self, function: Callable[[torch.nn.Module], None]) -> PortedModel:
        """Apply `function` to each module, as torch does, send the weights to the device, and return this model."""
        self._port.model.apply(function)
        self.copy_weights_to_device()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> PortedModel:
        """Switch training of all parameters on or off, and return this model; D005 tells that it comes too late."""
        self._port.model.requires_grad_(requires_grad)
        self._runners.training.say_late_changes()
        return self

    def save(
        self,
        path: Path,
        *,
        schedulers: Sequence[Any] = (),
        loader: object = None,
        step: Optional[int] = None,
        epoch: Optional[int] = None,
        extra: object = None,
        loop: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Write a checkpoint from which the training goes on exactly, as `save_training` does.

        What else a program keeps goes into `extra`: `extra={"best": best}`.
        """
        counts: Dict[str, Any] = {"step": step, "epoch": epoch, "extra": extra, "loop": loop}
        parts = self._port, self._optimizer, self._runners
        save_training(*parts, path, schedulers=schedulers, loader=loader, **counts)

    def load(
        self, checkpoint: Union[Path, Checkpoint], *, schedulers: Sequence[Any] = (), loader: object = None
    ) -> Checkpoint:
        """Go on from a checkpoint of `save` and return it, as `load_training` does."""
        parts = self._port, self._optimizer, self._runners
        return load_training(*parts, checkpoint, schedulers=schedulers, loader=loader)

    # -- device -------------------------------------------------------------------------------------------------------

    def attach(self) -> PortedModel:
        """Take the device again for training; DeviceError D004 or D007 when nothing is compiled for it."""
        self._runners.training.attach()
        return self

    def detach(self) -> PortedModel:
        """Release the device; weights and optimizer state come to the host first. The next call takes it again."""
        for runner in self._runners:
            runner.detach()
        return self

    def destroy(self) -> None:
        """Drop all executables; the weights and the optimizer's state stay, and the next call compiles anew."""
        self._runners.destroy()
        self._optimizer.keep_state()

    def report(self) -> RunReport:
        """Tell which device ran, how often, when and how long it compiled, and whether a cache was hit."""
        findings, records = self._findings.all, self._runners.records
        return make_report(self._port, self._optimizer.device, findings, records, waiting=self._waiting)

    # -- the rest of the model ----------------------------------------------------------------------------------------

    @property
    def port(self) -> Port:
        """What was ported, and where and how it runs."""
        return self._port

    @property
    def port_optimizer(self) -> PortOptimizer:
        """The optimizer on the host and its counterpart on the device, and the steps that it has made."""
        return self._optimizer

    @property
    def device_executor(self) -> Any:
        """The backend's executor of the training step; None while nothing is compiled."""
        return self._runners.training.executor
