"""Compare two trainings of the user's, plain and ported, with a tolerance that is given.

The runs, the records and the judgement are those of `verify`; what differs is that nothing is copied or repeated.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Tuple

import torch

from porting.api.ported_model import PortedModel
from porting.comparison import Tolerance
from porting.diagnostics import PortingError, join_names, say_number
from porting.structure import make_call_arguments
from porting.verify.calls import Calls
from porting.verify.certificate import KindVerdict, Measured, Verdict, align_kinds, describe_measured, find_earliest
from porting.verify.inputs import refuse
from porting.verify.judgement import FixedBand, Judgement, judge_runs
from porting.verify.plain_runs import record_calls
from porting.verify.plain_training import Grouping, PlainRun, PlainTraining
from porting.verify.ported_run import PortedTraining, record_port
from porting.verify.records import Record

__all__ = ["KINDS", "TrainingComparison", "compare_training"]

# of a weight, in units of its last place: what rounds when an update is the difference of two weights
_ROUNDINGS = 4 * torch.finfo(torch.float32).eps


def compare_training(
    plain: PlainTraining,
    ported: PortedModel,
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
    after the other. Losses and gradients are compared for every optimizer step; weights, what a call changed
    of them ("update"), buffers and the optimizer's state after every call. A schedule of the port
    (`ported.scheduler(...)`) is stepped after each call, with that of `plain`.

    The models must be two, with equal weights: `copy.deepcopy` before the port is made. The port has to bring its
    gradients to the host, `PortOptions(keep_gradients=True)`; with `gradients=False` they are not compared. Two tensors
    are equal when their distance as vectors is at most `relative` of their length, or `absolute` for each element; an
    update has the rounding of its weight in the place of `absolute`. It is the comparison of `verify` with a tolerance
    that is given, in the place of one that is measured. Random numbers (Dropout) are equal on the simulator if the
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
    calls = Calls(map(make_call_arguments, steps))
    if not calls:
        refuse("there is no batch to train with", "give batches as a call takes them, `[(inputs, labels), ...]`")
    options = ported.options
    ours, theirs = Record(), Record()
    # after the batches were made, which may have drawn: here the stream of an uncompiled port begins
    run = PlainRun(plain, options.replicas, torch.get_rng_state())
    ours.keep_state(0, plain.model, {})
    record_calls(run, calls, Grouping.of(options), ours, is_each_kept=True)
    theirs.keep_state(0, ported.model, {})
    record_port(PortedTraining(ported, scheduler), calls, theirs, is_each_kept=True)
    if not gradients:
        theirs.sketches = {key: found for key, found in theirs.sketches.items() if key[0] != "gradient"}
    judged = judge_runs(ours, theirs, FixedBand(partial(_find_allowed, ours, Tolerance(relative, absolute))))
    kinds = [kind for kind in _select_numbers(judged).list_verdicts() if kind.num_compared]
    return TrainingComparison(len(calls), ours.num_steps, relative, absolute, tuple(kinds))


def _select_numbers(judged: Judgement) -> Judgement:
    """Return what a tolerance is for: the numbers that steps compute, and not what they were asked for."""
    found = Judgement()
    for one in itertools.chain.from_iterable(judged.measured.values()):
        if one.step and (one.kind in KINDS or one.kind == "loss curve"):
            found.add([replace(one, kind="loss") if one.kind == "loss curve" else one])
    if judged.lost is not None:
        found.add([Measured("loss", "loss", judged.lost, math.inf, 0.0, 0.0, "it is not finite on either side")])
    return found


def _find_allowed(plain: Record, tolerance: Tolerance, kind: str, step: int, name: str) -> float:
    """Return how far a quantity may be by a tolerance that is given."""
    if kind not in KINDS or kind == "loss":
        return tolerance.allowed_at(abs(plain.mean_loss(step) or 0.0))
    sketch = plain.find(kind, step)[name]
    least = tolerance.absolute * math.sqrt(sketch.numel)
    if kind == "update":
        least = _ROUNDINGS * plain.sketches["parameter", step][name].norm
    return Tolerance(tolerance.relative, least).allowed_at(sketch.norm)


# -- what cannot be compared -----------------------------------------------------------------------------------------


def _check_pair(plain: PlainTraining, ported: PortedModel, *, gradients: bool) -> None:
    if plain.model is ported.model:
        refuse("both trainings have the same model", "take a `copy.deepcopy(model)` for one of them, with an optimizer")
    if not ported.training:
        refuse("the port is in eval mode", "call `ported.train()`")
    if gradients and not ported.options.keep_gradients:
        refuse(
            "the port keeps its gradients on the device",
            'use `PortOptions(keep_gradients=True, output_mode="all")`, or leave them out: `gradients=False`',
        )
    if plain.accumulated not in ("mean", "sum"):
        refuse(f"`accumulated` is {plain.accumulated!r}", "use 'mean' or 'sum'")
    own = {id(parameter) for parameter in plain.model.parameters()}
    if any(id(parameter) not in own for group in plain.optimizer.param_groups for parameter in group["params"]):
        refuse("the plain optimizer has parameters that are not the plain model's", "make it from `model.parameters()`")
    if ported.options.output_mode != "all" and ported.options.micro_batches_per_call > 1:
        refuse("the port returns the losses of some micro-batches only", 'use `PortOptions(output_mode="all")`')
    _check_same_start(plain.model.state_dict(), ported.model.state_dict())


def _check_same_start(plain: Mapping[str, Any], ported: Mapping[str, Any]) -> None:
    other = [name for name in {**plain, **ported} if name not in plain or name not in ported]
    if other:
        refuse(f"the models are different: only one has {join_names(other, most=3)}", "take copies of one model")
    other = [name for name in plain if plain[name].shape != ported[name].shape]
    if other:
        refuse(f"the models are different: other shapes of {join_names(other, most=3)}", "take copies of one model")
    other = [name for name in plain if plain[name].dtype != ported[name].dtype]
    if other:
        dtypes = [str(state[other[0]].dtype).replace("torch.", "") for state in (plain, ported)]
        fault = f"{join_names(other, most=3)}, {dtypes[0]} in plain PyTorch and {dtypes[1]} in the port"
        remedy = f"port with the precision of the plain model, or convert that as well: `.to(torch.{dtypes[1]})`"
        refuse(f"the models have other dtypes: {fault}", remedy)
    other = [name for name in plain if not torch.equal(plain[name], ported[name])]
    if other:
        fault = f"the models have other weights at the start: {join_names(other, most=3)}"
        refuse(fault, "take a `copy.deepcopy(model)` before either is trained")


_OPTIMIZERS = "the optimizers differ: learning rate, weight decay, momentum, parameter groups, clipping"

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "loss": "forward or the loss differ: labels, the loss's reduction, train or eval mode, the order of samples",
        "gradient": "what is differentiated differs: a frozen layer, `reduction=` of the options, the loss of a part",
        "update": _OPTIMIZERS,
        "optimizer state": "the optimizers differ: momentum, betas, parameter groups",
        "buffer": "statistics differ: BatchNorm's momentum, its mode, the size of micro-batches",
        "parameter": _OPTIMIZERS,
    }
)
"""What is compared, in the order in which a fault spreads, and where a fault lies that begins there."""


@dataclass(frozen=True)
class TrainingComparison:
    """Whether a port trains as plain PyTorch does; `str()` is a table, `check()` raises where it does not."""

    num_calls: int
    num_steps: int
    relative: float
    absolute: float
    kinds: Tuple[KindVerdict, ...]

    @property
    def holds(self) -> bool:
        """Whether everything that was compared is equal within the tolerance."""
        return self.first is None

    @property
    def first(self) -> Optional[Measured]:
        """The difference where it begins: that of the earliest step, and there of the first kind of `KINDS`."""
        return find_earliest(self.kinds)

    def check(self) -> TrainingComparison:
        """Return this comparison if it holds; raise PortingError V001 with the worst differences otherwise."""
        first = self.first
        if first is None:
            return self
        others = [kind.worst for kind in self.kinds if kind.worst is not None and not kind.worst.is_inside]
        raise PortingError.at_caller(
            "V001",
            message=f"in step {first.step} the {first.kind} `{first.name}` is not that of plain PyTorch",
            notes=(f"the {describe_measured(first)}", *(f"worst {describe_measured(other)}" for other in others)),
            help=KINDS[first.kind],
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return all of it as plain values."""
        return {"holds": self.holds, **asdict(self, dict_factory=_make_dict)}

    def __str__(self) -> str:
        return "\n".join(self._iter_lines())

    def _iter_lines(self) -> Iterator[str]:
        word = "equal" if self.holds else "DIFFERENT"
        steps = say_number(self.num_steps, "optimizer step")
        yield f"plain PyTorch and the port: {word} in {steps} (relative {self.relative:g}, absolute {self.absolute:g})"
        yield ""
        yield from align_kinds(self.kinds)
        if self.first is not None:
            yield ""
            yield f"it begins in step {self.first.step} with the {self.first.kind} `{self.first.name}`:"
            yield f"{KINDS[self.first.kind]}"


def _make_dict(items: Iterable[Tuple[str, Any]]) -> Dict[str, Any]:
    found: Dict[str, Any] = {name: value.value if isinstance(value, Verdict) else value for name, value in items}
    if "distance" in found:
        distance, scale = found["distance"], found["scale"]
        found["relative"] = distance / scale if scale else (math.inf if distance else 0.0)
    return found
