"""All that is known of the step in which a port first differs: both sides traced, and the settings compared."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from porting.adapters.optimizer_state import name_parameters
from porting.diagnostics import BatchError, PortingError
from porting.engines.calls.group_settings import read_settings
from porting.verify.fault_location.setting_differences import (
    SettingDifference,
    compare_losses,
    compare_modules,
    compare_optimizers,
)
from porting.verify.fault_location.step_trace import keep_part
from porting.verify.fault_location.traced_steps import StateParts, StepTrace, replay_call, trace_plain_step
from porting.verify.fault_location.training_copies import kept_training, perturb_weights
from porting.verify.plain_training import MicroBatch, PlainRun, PlainTraining, cut_micro_batches

__all__ = ["Evidence", "MakeCall", "Observed", "gather_evidence"]


MakeCall = Callable[[Tuple[Any, ...], Dict[str, Any]], Any]


@dataclass(frozen=True)
class Observed:
    """What a call of the port gave: the losses of the step's micro-batches, gradients if it keeps them, the state."""

    losses: Sequence[float] = ()
    gradients: Dict[str, torch.Tensor] = field(default_factory=dict)
    after: StateParts = field(default_factory=StateParts)


@dataclass(frozen=True)
class Evidence:
    """One optimizer step of both sides.

    `step` is plain PyTorch's, `changed` the same with weights that differ in their last bits, `replayed` that of the
    port on the simulator (None on a device that shows no values in between), `observed` what its call really gave.
    `groups` and `group_names` are the optimizer of the port. `state_before` is the port's before the step;
    `unknown` says why there is no replay.
    """

    plain: PlainTraining
    ported: Any
    micro_batches: Sequence[MicroBatch]
    step: StepTrace
    changed: StepTrace
    replayed: Optional[StepTrace]
    observed: Observed
    state_before: StateParts
    groups: Sequence[Any]
    group_names: Sequence[Sequence[str]]
    random_state: torch.Tensor
    unknown: str = ""

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
        return compare_optimizers(self.plain, self.groups, self.group_names)

    @property
    def gradients(self) -> Dict[str, torch.Tensor]:
        """The gradients that the port's update used: those of its call, or of its replay where it keeps none."""
        if self.observed.gradients or self.replayed is None:
            return self.observed.gradients
        return self.replayed.gradients


def gather_evidence(plain: PlainTraining, ported: Any, call: MicroBatch, *, step: int, make_call: MakeCall) -> Evidence:
    """Run the call that makes optimizer step `step` on both sides and return all that arises.

    `make_call` makes the port's, given positional and keyword arguments.

    The plain training is as before afterwards; the port has made one call.
    """
    args, kwargs = call
    options = ported.options
    index, size = (step - 1) % options.device_iterations, options.accumulation * options.replicas
    rehearsal, unknown = _rehearse_call(ported, call)
    groups, group_names = _read_port_groups(ported) if rehearsal is None else (rehearsal.groups, rehearsal.group_names)
    random_state = torch.get_rng_state()
    if rehearsal is not None and rehearsal.state.rng_state is not None:
        random_state = rehearsal.state.rng_state.clone()
    replayed = None
    if rehearsal is not None:
        replayed = replay_call(ported, rehearsal)[index]
    all_micro_batches = cut_micro_batches(args, kwargs, options.micro_batches_per_call)
    steps = [all_micro_batches[first : first + size] for first in range(0, len(all_micro_batches), size)]
    dtype = _find_narrowest(replayed)
    with kept_training(plain):
        perturb_weights(plain, dtype)
        changed = _trace_plain(plain, options.replicas, random_state, steps[: index + 1])
    with kept_training(plain):
        traced = _trace_plain(plain, options.replicas, random_state, steps[: index + 1])
    before = _read_host_state(ported)
    observed = _observe_call(ported, make_call(args, kwargs), index, size)
    return Evidence(
        plain=plain,
        ported=ported,
        micro_batches=steps[index],
        step=traced,
        changed=changed,
        replayed=replayed,
        observed=observed,
        state_before=before if replayed is None else replayed.before,
        groups=groups,
        group_names=group_names,
        random_state=random_state,
        unknown=unknown,
    )


def _rehearse_call(ported: Any, call: MicroBatch) -> Tuple[Any, str]:
    """Return the call of the port that can be replayed; None, and the reason, where there is none."""
    try:
        rehearsal = ported.keep_call(*call[0], **call[1]).rehearsal
    except BatchError as error:
        return (
            None,
            f"the port cannot take the batch as it is ({error.finding.message}): what it is called with differs",
        )
    return rehearsal, "" if rehearsal is not None else "this device shows no values in between"


def _trace_plain(
    plain: PlainTraining, replicas: int, random_state: torch.Tensor, steps: Sequence[Sequence[MicroBatch]]
) -> StepTrace:
    run = PlainRun(plain, replicas, random_state)
    for micro_batches in steps[:-1]:
        run.step(micro_batches)
    return trace_plain_step(run, steps[-1])


def _find_narrowest(replayed: Optional[StepTrace]) -> torch.dtype:
    """Return the narrowest floating-point type that the port computes in: its rounding is what counts."""
    found = torch.float32
    for trace in [] if replayed is None else replayed.micro_batches:
        for result in (result for value in trace.values for result in value.results):
            if result.is_floating_point() and torch.finfo(result.dtype).eps > torch.finfo(found).eps:
                found = result.dtype
    return found


def _observe_call(ported: Any, returned: Any, index: int, size: int) -> Observed:
    losses = ported.loss_of(returned).detach().flatten()
    if len(losses) == size * ported.options.device_iterations:
        losses = losses[index * size : (index + 1) * size]
    gradients = {}
    if ported.options.keep_gradients:
        gradients = {name: keep_part(value) for name, value in ported.gradients(index).items()}
    is_last = index == ported.options.device_iterations - 1
    return Observed(
        [float(loss) for loss in losses] if len(losses) == size else [],
        gradients,
        _read_host_state(ported) if is_last else StateParts(),
    )


def _read_host_state(ported: Any) -> StateParts:
    model = ported.model
    slots: Dict[str, Dict[str, torch.Tensor]] = {}
    # a port that has not trained has no state to show
    with suppress(PortingError):
        state = ported.optimizer_state_dict().get("state", {})
        order = [name for names in _name_groups(ported) for name in names]
        for number, own in state.items():
            tensors = {slot: keep_part(value) for slot, value in own.items() if isinstance(value, torch.Tensor)}
            slots[order[number] if number < len(order) else str(number)] = tensors
    return StateParts(
        {name: keep_part(parameter) for name, parameter in model.named_parameters()},
        {name: keep_part(buffer) for name, buffer in model.named_buffers()},
        slots,
    )


def _name_groups(ported: Any) -> List[List[str]]:
    optimizer = ported.optimizer
    names = name_parameters(optimizer, ported.port.wrapped)
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


def _read_port_groups(ported: Any) -> Tuple[Sequence[Any], Sequence[Sequence[str]]]:
    return read_settings(ported.optimizer), _name_groups(ported)
