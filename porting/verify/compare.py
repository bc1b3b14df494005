"""`compare_training`: the same batches train a plain model and its port, and every number is compared in every step."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, NoReturn, Tuple

import torch
from torch import nn

from porting.comparison import Tolerance
from porting.comparison.tensors import rounding_of
from porting.diagnostics import PortingError, list_names
from porting.structure import make_call_arguments
from porting.verify.plain_training import PlainRun, PlainTraining, cut_micro_batches
from porting.verify.training_comparison import Differences, TrainingComparison

__all__ = ["compare_training"]

# of a weight, in units of its last place: what rounds when an update is the difference of two weights
_ROUNDINGS = 4

_Tensors = Dict[str, torch.Tensor]


def compare_training(
    plain: PlainTraining,
    ported: Any,
    steps: Iterable[Any],
    *,
    scheduler: Any = None,
    relative: float = 1e-4,
    absolute: float = 1e-6,
    gradients: bool = True,
) -> TrainingComparison:
    """Train `plain` and `ported` with the same batches and compare losses, gradients, updates, weights and states.

    `steps` are combined batches as calls of `ported` take them, such as those of `ported.dataloader(loader)`: tuples of
    arguments, or dictionaries of keywords. The plain training makes each optimizer step of the same micro-batches, one
    after the other. Losses and gradients are compared for every optimizer step; weights, what a call changed of them
    ("update"), buffers and the optimizer's state after every call; buffers of integers are left out, which are
    constants on the device. A schedule of the port (`ported.scheduler(...)`) is stepped after each call, with that of
    `plain`.

    The models must be two, with equal weights: `copy.deepcopy` before the port is made. The port has to bring its
    gradients to the host, `PortOptions(keep_gradients=True)`; with `gradients=False` they are not compared. Two tensors
    are equal when their largest difference is at most `relative` of their largest element, or `absolute`; an update has
    the rounding of its weight in the place of `absolute`. Random numbers (Dropout) are equal on the simulator if the
    port is not compiled before; on hardware they never are.

    Both models are trained afterwards. The result says what differs; its `check()` raises PortingError V001. Raises
    PortingError V002 for what cannot be compared.

    >>> import copy, porting, torch
    >>> from torch import nn
    >>> from porting import PlainTraining, compare_training
    >>> model = nn.Linear(4, 2)
    >>> twin = copy.deepcopy(model)
    >>> ported = porting.to_ipu(
    ...     model,
    ...     nn.MSELoss(),
    ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    ...     options=porting.PortOptions(keep_gradients=True),
    ...     device="sim",
    ... )
    >>> plain = PlainTraining(twin, nn.MSELoss(), torch.optim.SGD(twin.parameters(), lr=0.1))
    >>> compare_training(plain, ported, [(torch.ones(3, 4), torch.zeros(3, 2))]).holds
    True
    """
    _check_pair(plain, ported, gradients=gradients)
    options = ported.options
    run = None
    differences = Differences(Tolerance(relative, absolute))
    num_calls = 0
    for batch in steps:
        args, kwargs = make_call_arguments(batch)
        if run is None:
            # after the first batch was made, which may have drawn: here the stream of an uncompiled port begins
            run = PlainRun(plain, options.replicas, torch.get_rng_state())
        first_step = num_calls * options.device_iterations + 1
        before = _copy_parameters(plain.model), _copy_parameters(ported.model)
        losses = ported.loss_of(ported(*args, **kwargs)).detach().flatten()
        _compare_steps(differences, run, ported, (args, kwargs), first_step, losses, gradients=gradients)
        _compare_state(differences, plain, ported, before, first_step + options.device_iterations - 1)
        for schedule in (plain.scheduler, scheduler):
            if schedule is not None:
                schedule.step()
        num_calls += 1
    if not num_calls:
        _refuse_pair("there is no batch to train with", "give batches as a call takes them, `[(inputs, labels), ...]`")
    return differences.summarise(num_calls=num_calls, num_steps=num_calls * options.device_iterations)


def _compare_steps(
    differences: Differences,
    run: PlainRun,
    ported: Any,
    batch: Tuple[Tuple[Any, ...], Dict[str, Any]],
    first_step: int,
    losses: torch.Tensor,
    *,
    gradients: bool,
) -> None:
    """Make the plain steps of one call, and compare losses and gradients of each."""
    options = ported.options
    size = options.accumulation * options.replicas
    micro_batches = cut_micro_batches(*batch, options.micro_batches_per_call)
    for number in range(options.device_iterations):
        plain = run.step(micro_batches[number * size : (number + 1) * size])
        own = losses[number * size : (number + 1) * size]
        differences.compare("loss", first_step + number, {"loss": torch.stack(plain.losses)}, {"loss": own})
        if gradients:
            found = ported.gradients(number)
            differences.compare("gradient", first_step + number, plain.gradients, found)


def _compare_state(
    differences: Differences, plain: PlainTraining, ported: Any, before: Tuple[_Tensors, _Tensors], step: int
) -> None:
    """Compare what a call has left behind; `before` are the parameters before it."""
    models = plain.model, ported.model
    after = [_copy_parameters(model) for model in models]
    updates = [{name: new[name] - value for name, value in old.items()} for old, new in zip(before, after)]
    floors = {name: rounding_of(value, units=_ROUNDINGS) for name, value in after[0].items()}
    differences.compare("update", step, updates[0], updates[1], floors)
    differences.compare("parameter", step, after[0], after[1])
    # others are constants on the device, such as BatchNorm's count of batches
    buffers = [{name: item for name, item in model.named_buffers() if item.is_floating_point()} for model in models]
    differences.compare("buffer", step, buffers[0], buffers[1])
    states = [_name_state(state, plain) for state in (plain.optimizer.state_dict(), ported.optimizer_state_dict())]
    differences.compare("optimizer state", step, states[0], states[1])


def _copy_parameters(model: nn.Module) -> _Tensors:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def _name_state(state: Mapping[str, Any], plain: PlainTraining) -> _Tensors:
    """Name the tensors of an optimizer's state after the plain model's parameters, whose order both have."""
    names = {id(parameter): name for name, parameter in plain.model.named_parameters()}
    order = [names[id(parameter)] for group in plain.optimizer.param_groups for parameter in group["params"]]
    found = {}
    for index, slots in state.get("state", {}).items():
        name = order[index] if index < len(order) else f"parameter {index}"
        for slot, value in slots.items():
            if isinstance(value, torch.Tensor):
                found[f"{slot} of {name}"] = value
    return found


# -- what cannot be compared -----------------------------------------------------------------------------------------


def _check_pair(plain: PlainTraining, ported: Any, *, gradients: bool) -> None:
    if plain.model is ported.model:
        _refuse_pair(
            "both trainings have the same model", "take a `copy.deepcopy(model)` for one of them, with an optimizer"
        )
    if not ported.training:
        _refuse_pair("the port is in eval mode", "call `ported.train()`")
    if gradients and not ported.options.keep_gradients:
        _refuse_pair(
            "the port keeps its gradients on the device",
            'use `PortOptions(keep_gradients=True, output_mode="all")`, or leave them out: `gradients=False`',
        )
    if plain.accumulated not in ("mean", "sum"):
        _refuse_pair(f"`accumulated` is {plain.accumulated!r}", "use 'mean' or 'sum'")
    own = {id(parameter) for parameter in plain.model.parameters()}
    if any(id(parameter) not in own for group in plain.optimizer.param_groups for parameter in group["params"]):
        _refuse_pair(
            "the plain optimizer has parameters that are not the plain model's", "make it from `model.parameters()`"
        )
    if ported.options.output_mode != "all" and ported.options.micro_batches_per_call > 1:
        _refuse_pair("the port returns the losses of some micro-batches only", 'use `PortOptions(output_mode="all")`')
    _check_same_start(plain.model.state_dict(), ported.model.state_dict())


def _check_same_start(plain: Mapping[str, Any], ported: Mapping[str, Any]) -> None:
    other = [name for name in {**plain, **ported} if name not in plain or name not in ported]
    if other:
        _refuse_pair(f"the models are different: only one has {list_names(other, most=3)}", "take copies of one model")
    other = [name for name in plain if plain[name].shape != ported[name].shape]
    if other:
        fault = f"the models are different: other shapes of {list_names(other, most=3)}"
        _refuse_pair(fault, "take copies of one model")
    other = [name for name in plain if plain[name].dtype != ported[name].dtype]
    if other:
        dtypes = [str(state[other[0]].dtype).replace("torch.", "") for state in (plain, ported)]
        fault = f"{list_names(other, most=3)}, {dtypes[0]} in plain PyTorch and {dtypes[1]} in the port"
        remedy = f"port with the precision of the plain model, or convert that as well: `.to(torch.{dtypes[1]})`"
        _refuse_pair(f"the models have other dtypes: {fault}", remedy)
    other = [name for name in plain if not torch.equal(plain[name], ported[name])]
    if other:
        fault = f"the models have other weights at the start: {list_names(other, most=3)}"
        _refuse_pair(fault, "take a `copy.deepcopy(model)` before either is trained")


def _refuse_pair(fault: str, remedy: str) -> NoReturn:
    raise PortingError.at_caller("V002", message=fault, help=remedy)
