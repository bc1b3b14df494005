"""`compare_training`: the same batches train a plain model and its port, and every number is compared in every step.

The result has the worst difference of each kind of number, its name and step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, Iterable, Iterator, Mapping, NoReturn, Optional, Tuple

import torch
from torch import nn

from porting.comparison import Difference, Tolerance
from porting.comparison.tensors import largest_distance, largest_magnitude, rounding_of
from porting.diagnostics import PortingError, list_names, say_number
from porting.structure import make_call_arguments
from porting.verify.plain_training import PlainRun, PlainTraining, cut_micro_batches

__all__ = ["KINDS", "KindDifferences", "TrainingComparison", "compare_training"]

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


KINDS: Mapping[str, str] = MappingProxyType(
    {
        "loss": "forward or the loss differ: labels, the loss's reduction, train or eval mode, the order of samples",
        "gradient": "what is differentiated differs: a frozen layer, `reduction=` of the options, the loss of a part",
        "update": "the optimizers differ: learning rate, weight decay, momentum, parameter groups, clipping",
        "parameter": "the optimizers differ: learning rate, weight decay, momentum, parameter groups, clipping",
        "buffer": "statistics differ: BatchNorm's momentum, its mode, the size of micro-batches",
        "optimizer state": "the optimizers differ: momentum, betas, parameter groups",
    }
)
"""What is compared, in the order in which a fault spreads, and where a fault lies that begins there."""

_FACTS = "name step largest scale relative allowed note"
# of a difference: how large it is, its scale, what is allowed, a note
_Measured = Tuple[float, float, float, str]


@dataclass(frozen=True)
class KindDifferences:
    """All comparisons of one kind: how many, the worst one, and the first one that is not allowed."""

    kind: str
    num_compared: int
    worst: Optional[Difference]
    first: Optional[Difference]

    @property
    def holds(self) -> bool:
        """Whether all of them are allowed."""
        return self.first is None


@dataclass(frozen=True)
class TrainingComparison:
    """Whether a port trains as plain PyTorch does; `str()` is a table, `check()` raises where it does not."""

    num_calls: int
    num_steps: int
    relative: float
    absolute: float
    kinds: Tuple[KindDifferences, ...]

    @property
    def holds(self) -> bool:
        """Whether everything that was compared is equal within the tolerance."""
        return self.first is None

    @property
    def first(self) -> Optional[Difference]:
        """The difference where it begins: that of the earliest step, and there of the first kind of `KINDS`."""
        found = [kind.first for kind in self.kinds if kind.first is not None]
        return min(found, key=lambda difference: difference.step) if found else None

    def check(self) -> TrainingComparison:
        """Return this comparison if it holds; raise PortingError V001 with the worst differences otherwise."""
        first = self.first
        if first is None:
            return self
        others = [kind.worst for kind in self.kinds if kind.worst is not None and not kind.worst.holds]
        raise PortingError.at_caller(
            "V001",
            message=f"in step {first.step} the {first.kind} `{first.name}` is not that of plain PyTorch",
            notes=(
                f"there {_describe_difference(first)}",
                *(f"worst {other.kind}: {_describe_difference(other, True)}" for other in others),
            ),
            help=KINDS[first.kind],
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return all of it as plain values."""
        return {
            **_list_values(self, "holds num_calls num_steps relative absolute"),
            "kinds": [
                {
                    **_list_values(kind, "kind num_compared holds"),
                    **{name: _list_values(getattr(kind, name), _FACTS) for name in ("worst", "first")},
                }
                for kind in self.kinds
            ],
        }

    def __str__(self) -> str:
        return "\n".join(self._list_lines())

    def _list_lines(self) -> Iterator[str]:
        word = "equal" if self.holds else "DIFFERENT"
        steps = say_number(self.num_steps, "optimizer step")
        yield f"plain PyTorch and the port: {word} in {steps} (relative {self.relative:g}, absolute {self.absolute:g})"
        yield ""
        yield f"        {'':<16}{'compared':>8}  {'worst':>8}  in step  of"
        for kind in self.kinds:
            verdict = "ok    " if kind.holds else "FAILED"
            yield f"{verdict}  {kind.kind:<16}{kind.num_compared:>8}  {_describe_worst(kind.worst)}"
        if self.first is not None:
            yield ""
            yield f"it begins in step {self.first.step} with the {self.first.kind} `{self.first.name}`:"
            yield f"{KINDS[self.first.kind]}"


class Differences:
    """Collects differences while two trainings run: of each kind the worst, and the first that is not allowed."""

    def __init__(self, tolerance: Tolerance) -> None:
        """Begin with nothing compared."""
        self.tolerance = tolerance
        self._kinds: Dict[str, KindDifferences] = {}

    def compare(
        self,
        kind: str,
        step: int,
        plain: Mapping[str, torch.Tensor],
        ported: Mapping[str, torch.Tensor],
        floors: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Compare tensors by name; `floors` are differences that are rounding, whatever the tolerance says.

        What only one side has is a difference, unless it is zero there.
        """
        for name in {**plain, **ported}:
            one, other = plain.get(name), ported.get(name)
            if one is None or other is None:
                measured = _measure_one_side(one, other)
            else:
                measured = self._measure_pair(one.detach().double(), other.detach().double(), floors.get(name))
            difference = Difference(kind, name, step, *measured)
            before = self._kinds.get(kind, KindDifferences(kind, 0, None, None))
            is_worse = before.worst is None or difference.severity > before.worst.severity
            first = difference if before.first is None and not difference.holds else before.first
            worst = difference if is_worse else before.worst
            self._kinds[kind] = KindDifferences(kind, before.num_compared + 1, worst, first)

    def summarise(self, *, num_calls: int, num_steps: int) -> TrainingComparison:
        """Return what was found."""
        kinds = tuple(self._kinds[kind] for kind in KINDS if kind in self._kinds)
        return TrainingComparison(num_calls, num_steps, self.tolerance.relative, self.tolerance.absolute, kinds)

    def _measure_pair(self, one: torch.Tensor, other: torch.Tensor, floor: Optional[float]) -> _Measured:
        if one.shape != other.shape:
            note = f"shape {list(other.shape)} in the port, {list(one.shape)} in plain PyTorch"
            return math.inf, 1.0, 0.0, note
        scale = max(largest_magnitude(one), largest_magnitude(other))
        tolerance = self.tolerance if floor is None else Tolerance(self.tolerance.relative, floor)
        allowed = tolerance.allowed_at(scale)
        return largest_distance(one, other), scale, allowed if math.isfinite(allowed) else 0.0, ""


def _measure_one_side(plain: Optional[torch.Tensor], ported: Optional[torch.Tensor]) -> _Measured:
    present = plain if ported is None else ported
    assert present is not None
    if not present.any():
        return 0.0, 0.0, 0.0, ""
    note = f"only {'plain PyTorch' if ported is None else 'the port'} has it"
    return math.inf, largest_magnitude(present.detach().double()), 0.0, note


def _describe_difference(difference: Difference, with_name: bool = False) -> str:
    subject = f"`{difference.name}` in step {difference.step}, " if with_name else ""
    if difference.note:
        return f"{subject}{difference.note}"
    return (
        f"{subject}largest difference {difference.largest:.1e} of {difference.scale:.1e} "
        f"(relative {difference.relative:.1e}, allowed {difference.allowed:.1e})"
    )


def _describe_worst(difference: Optional[Difference]) -> str:
    if difference is None:
        return ""
    note = f" ({difference.note})" if difference.note else ""
    value = "missing" if difference.note.startswith("only") else f"{difference.relative:.1e}"
    return f"{value:>8}  {difference.step:>7}  {difference.name}{note}"


def _list_values(item: Any, names: str) -> Any:
    return None if item is None else {name: getattr(item, name) for name in names.split()}
