"""Gather all that is known of the step in which a port first differs: both sides traced, and the settings compared.

`location` searches in it.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.api.ported_model import PortedModel
from porting.comparison.tensors import change_weights
from porting.diagnostics import BatchError, PortingError
from porting.observe.watcher import StepState
from porting.support.host_state import keep_streams
from porting.verify.calls import copy_tensors, have_same_tensors
from porting.verify.certificate import Location, Measured
from porting.verify.fault_location.setting_differences import (
    SettingDifference,
    compare_losses,
    compare_modules,
    compare_optimizers,
)
from porting.verify.fault_location.step_trace import keep_part
from porting.verify.fault_location.traced_steps import (
    LOSS,
    ROOT,
    StateParts,
    StepTrace,
    Tensors,
    replay_call,
    trace_plain_step,
)
from porting.verify.optimizer_settings import read_settings
from porting.verify.plain_runs import copy_training
from porting.verify.plain_training import MicroBatch, PlainRun, PlainTraining, cut_micro_batches

__all__ = ["Evidence", "MakeCall", "copy_changed", "find_module", "gather_evidence"]

MakeCall = Callable[[Tuple[Any, ...], Dict[str, Any]], Any]
Ratios = Mapping[int, Mapping[str, float]]
"""How many times plain PyTorch's a tensor of the port's is, by kept step and name."""


@dataclass(frozen=True)
class Evidence:
    """One optimizer step of both sides.

    `first` is what differed first. `step` is plain PyTorch's, `changed` the same with weights that differ in their last
    bits, `replayed` that of the port on the simulator (None on a device that shows no values in between; `unknown` says
    why). `losses`, `gradients` and `after` are what the port's call gave, or else its replay, `before` is its state
    before. `handed` says what of the batch the loop has changed before the call. `ratios` are those of the gradients
    and updates of the whole training, by kind.
    """

    plain: PlainTraining
    ported: Any
    first: Measured
    micro_batches: Sequence[MicroBatch] = ()
    step: StepTrace = field(default_factory=StepTrace)
    changed: StepTrace = field(default_factory=StepTrace)
    replayed: Optional[StepTrace] = None
    losses: Sequence[float] = ()
    gradients: Tensors = field(default_factory=dict)
    before: StateParts = field(default_factory=StateParts)
    after: StateParts = field(default_factory=StateParts)
    random_state: torch.Tensor = field(default_factory=torch.get_rng_state)
    unknown: str = ""
    handed: str = ""
    ratios: Mapping[str, Ratios] = field(default_factory=dict)

    @property
    def modules(self) -> List[SettingDifference]:
        """What differs between the settings of the modules."""
        return compare_modules(self.plain.model, self.ported.model)

    @property
    def loss(self) -> List[SettingDifference]:
        """What differs between the settings of the losses."""
        return compare_losses(self.plain, self.ported.port)

    @property
    def optimizer(self) -> List[SettingDifference]:
        """What differs between the settings of the optimizers."""
        own, device = self.plain, self.ported.optimizer
        plain = read_settings(own.optimizer, own.model.named_parameters(), own.max_grad_norm)
        return compare_optimizers(plain, read_settings(device, self.ported.port.wrapped.named_parameters()))

    @property
    def replicas(self) -> int:
        """How many replicas the port has."""
        return int(self.ported.options.replicas)

    @property
    def loss_scaling(self) -> float:
        """What the port's loss is multiplied by before its backward pass."""
        return float(getattr(self.ported.optimizer, "loss_scaling", 1.0))

    def list_settings(self, path: str) -> List[SettingDifference]:
        """Return what differs in the settings of the module at `path`; where nothing does, of those around it."""
        if path in (LOSS, ""):
            return self.loss
        found, at = self.modules, "" if path == ROOT else path
        while at and not any(difference.owner == at for difference in found):
            at = at.rpartition(".")[0]
        return [difference for difference in found if difference.owner == at]

    def name_module(self, path: str) -> str:
        """Return the name by which a user knows the module at `path`: the class of the model or the loss for those."""
        if path == ROOT:
            return type(self.plain.model).__name__
        if path == LOSS:
            loss = self.plain.loss
            return type(loss).__name__ if isinstance(loss, nn.Module) else str(getattr(loss, "__name__", "loss"))
        return path

    def locate(self, phase: str, path: str, **found: Any) -> Location:
        """Return a location in the module at `path`."""
        return Location(phase, self.first.step, self.name_module(path), **found)


def copy_changed(training: PlainTraining, dtype: Optional[torch.dtype]) -> PlainTraining:
    """Return a copy of a training, its weights changed in the last bits that numbers of `dtype` have, if any."""
    own = copy_training(training)
    if dtype is not None:
        relative = None if dtype is torch.float32 else 2 * torch.finfo(dtype).eps
        change_weights(own.model.parameters(), 0, relative=relative)
    return own


def find_module(path: str, model: nn.Module) -> Optional[nn.Module]:
    """Return the module of `model` at `path`."""
    return model if path == ROOT else dict(model.named_modules()).get(path)


def gather_evidence(
    plain: PlainTraining,
    ported: PortedModel,
    call: MicroBatch,
    *,
    first: Measured,
    make_call: MakeCall,
    ratios: Optional[Mapping[str, Ratios]] = None,
) -> Evidence:
    """Run the call that makes optimizer step `first.step` on both sides and return all that arises.

    `make_call` makes the port's. The plain training is as before afterwards; the port has made one call.
    """
    args, kwargs = call
    options = ported.options
    index, size = (first.step - 1) % options.device_iterations, options.accumulation * options.replicas
    rehearsal, unknown = _rehearse_call(ported, call)
    random_state = torch.get_rng_state()
    if rehearsal is not None and rehearsal.state.rng_state is not None:
        random_state = rehearsal.state.rng_state.clone()
    replayed = None if rehearsal is None else replay_call(ported, rehearsal)[index]
    parts = cut_micro_batches(args, kwargs, options.micro_batches_per_call)
    steps = [parts[start : start + size] for start in range(0, len(parts), size)][: index + 1]
    traced = []
    for dtype in (_find_narrowest(replayed), None):
        with keep_streams():
            run = PlainRun(copy_changed(plain, dtype), options.replicas, random_state)
            for micro_batches in steps[:-1]:
                run.step(micro_batches)
            traced.append(trace_plain_step(run, steps[-1]))
    before = _read_host_state(ported) if replayed is None else replayed.before
    returned, handed = _watch_call(plain, ported, call, make_call)
    losses = [float(loss) for loss in ported.loss_of(returned).detach().flatten()]
    if len(losses) == size * options.device_iterations:
        losses = losses[index * size : (index + 1) * size]
    gradients = ported.gradients(index) if options.keep_gradients else {}
    made = replayed or StepTrace()
    is_last = index == options.device_iterations - 1
    return Evidence(
        plain=plain,
        ported=ported,
        first=first,
        micro_batches=steps[-1],
        step=traced[1],
        changed=traced[0],
        replayed=replayed,
        losses=losses if len(losses) == size else made.losses,
        gradients={name: keep_part(value) for name, value in gradients.items()} or made.gradients,
        before=before,
        after=_read_host_state(ported) if is_last else made.after,
        random_state=random_state,
        unknown=unknown,
        handed=handed,
        ratios=ratios or {},
    )


def _rehearse_call(ported: PortedModel, call: MicroBatch) -> Tuple[Any, str]:
    """Return the call of the port that can be replayed; None, and the reason, where there is none."""
    try:
        rehearsal = ported.keep_call(*call[0], **call[1]).rehearsal
    except BatchError as error:
        words = f"the port cannot take the batch as it is ({error.finding.message}): what it is called with differs"
        return None, words
    return rehearsal, "" if rehearsal is not None else "this device shows no values in between"


def _watch_call(plain: PlainTraining, ported: PortedModel, call: MicroBatch, make_call: MakeCall) -> Tuple[Any, str]:
    """Make the port's call; return what it returned, and say what of the batch the loop has changed on the way."""
    handed: List[MicroBatch] = []
    watch = ported.register_forward_pre_hook(lambda _port, *given: handed.append(copy_tensors(given)), with_kwargs=True)
    try:
        returned = make_call(*call)
    finally:
        watch.remove()
    known, given = ({**dict(enumerate(side[0])), **side[1]} for side in (call, handed[0] if handed else call))
    # what the batch has by its place may be handed over by its name
    pairs = itertools.zip_longest(known.items(), given.values())
    changed = [item[0] for item, other in pairs if item and not have_same_tensors(item[1], given.get(item[0], other))]
    if not changed:
        return returned, ""
    label = plain.label % len(call[0]) if isinstance(plain.label, int) and call[0] else plain.label
    named = ["the label" if name == label else f"argument `{name}`" for name in changed]
    return returned, f"what a call gets is not the batch: the loop's own `call=` changes {' and '.join(named)}"


def _find_narrowest(replayed: Optional[StepTrace]) -> torch.dtype:
    """Return the narrowest floating-point type that the port computes in: its rounding is what counts."""
    found = torch.float32
    for trace in [] if replayed is None else replayed.micro_batches:
        for result in (result for value in trace.values for result in value.results):
            if result.is_floating_point() and torch.finfo(result.dtype).eps > torch.finfo(found).eps:
                found = result.dtype
    return found


def _read_host_state(ported: PortedModel) -> StateParts:
    # a port that has not trained has no state to show
    with suppress(PortingError):
        users = ported.port_optimizer.require_users()
        return StateParts.keep(StepState.of(ported.model, users, ported.optimizer_state_dict()))
    return StateParts.keep(StepState.of(ported.model))
