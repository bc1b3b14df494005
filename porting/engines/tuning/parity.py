"""Does a candidate compute what replay computes? Both run from equal states; all that they leave is compared.

Two correct programs round differently, and a step can magnify that: the direction of Adam's step for a gradient that
is zero but for rounding is noise, and many layers of BatchNorm pass on more than they get. So a third run, of replay
itself with each operator's result rounded at random, measures how far rounding alone carries each tensor; a candidate
may differ by that much, times a margin, where the fixed tolerance is exceeded. What an optimizer makes of a gradient
that is nothing but rounding is not compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch

from ...capture import StepGraph
from ...comparison import Difference, Tolerance, is_rounding
from ...comparison.tensors import change_last_bits, distance_of, have_same_specials, largest_magnitude
from ..calls.call_plan import CallPlan
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest, Executable
from ..replay.replay import ReplayExecutable
from .rounding_noise import RandomRounding

__all__ = [
    "Parity",
    "Side",
    "Trial",
    "check_parity",
    "compare_with_replay",
    "empty_state",
    "working_type",
]


class _Tolerances(NamedTuple):
    """How far results, and what a call leaves, may differ, relative to the length of the tensor as a vector."""

    results: float
    state: float


# The half types keep 11 and 8 bits; a chain of operators that are each rounded once, in another order or not at all
# between two of them, loses a few of those. An update adds its own rounding to that of the gradient.
_TOLERANCES = {
    torch.float32: _Tolerances(1e-5, 1e-4),
    torch.float16: _Tolerances(5e-3, 2e-2),
    torch.bfloat16: _Tolerances(4e-2, 1e-1),
}
# How much further than the one measured example of generous rounding errors a tensor may be.
_NOISE_MARGIN = 4.0
# An optimizer's state that generous rounding errors change by this share is noise: its sign may be either one.
_UNDECIDED = 0.1
# How far noise may move a weight, beside the furthest that the step moves any weight of the tensor.
_FURTHEST = 3.0
# What counts as zero beside the other tensors of its kind.
_NOTHING = 1e-7
_FEW_FLIPS = 1e-3


@dataclass(frozen=True)
class Trial:
    """What is run for a comparison or a measurement: the inputs of a call, its plan, and the optimizer's groups.

    `weights` are the values of parameters and buffers by name, which nothing here writes to.
    """

    weights: Mapping[str, torch.Tensor]
    inputs: Sequence[torch.Tensor]
    plan: CallPlan
    groups: Sequence[Any] = ()
    group_names: Sequence[Sequence[str]] = ()
    seed: int = 0

    def prepare(self, state: DeviceState) -> DeviceState:
        """Give an empty state of the graph the weights and the random stream of the trial; return it."""
        state.upload(self.weights)
        state.rng_state = torch.Generator().manual_seed(self.seed).get_state()
        return state

    def run(self, executable: Executable, state: DeviceState) -> List[torch.Tensor]:
        """Run one call."""
        return executable.run(
            state, self.inputs, self.plan, groups=list(self.groups), group_names=[list(n) for n in self.group_names]
        )


@dataclass(frozen=True)
class Parity:
    """Whether a candidate agrees with replay; `difference` names the first tensor that does not, in a sentence.

    `worst` is the largest relative difference of all tensors that were compared.
    """

    difference: str = ""
    worst: float = 0.0
    num_calls: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing differs by more than rounding explains."""
        return not self.difference

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {"difference": self.difference, "worst": self.worst, "num_calls": self.num_calls}


class Side(NamedTuple):
    """An executable, and what makes an empty state for it."""

    executable: Executable
    new_state: Callable[[], DeviceState]


def working_type(graph: StepGraph) -> torch.dtype:
    """Return the coarsest type of numbers that `graph` computes in.

    >>> from porting.capture import capture_step
    >>> working_type(capture_step(torch.nn.Linear(2, 1), [torch.ones(1, 2)], mode="inference"))
    torch.float32
    """
    values = (node.meta.get("val") for node in graph.graph.nodes)
    found = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    return max(found & set(_TOLERANCES), key=lambda dtype: _TOLERANCES[dtype], default=torch.float32)


def check_parity(
    candidate: Side, reference: Side, trial: Trial, *, num_calls: int = 3, precision: torch.dtype = torch.float32
) -> Parity:
    """Run `candidate` and `reference` for `num_calls` calls of `trial` and compare all that they return and leave.

    `precision` is the coarsest type that the step computes in. Whatever the candidate raises comes through.
    """
    runs = (
        _Run(candidate.executable, trial.prepare(candidate.new_state())),
        _Run(reference.executable, trial.prepare(reference.new_state())),
        _Run(reference.executable, _perturb(trial.prepare(reference.new_state()))),
    )
    # Three runs from the same start: the candidate, replay, and replay that is rounded otherwise.
    rounding, worst = RandomRounding(), 0.0
    for call in range(1, num_calls + 1):
        found, expected = (_collect_all(trial.run(*run), run.state) for run in runs[:2])
        with rounding:
            rounded = _collect_all(trial.run(*runs[2]), runs[2].state)
        # other results, or a slot that one of them has not made
        if list(found) != list(expected):
            return Parity(f"it has other results than replay after call {call}", worst, call)
        scales = _measure_scales(expected)
        for key, wanted in expected.items():
            allowed = _tolerance_for(key, precision, nothing=_NOTHING * scales[key.kind])
            value = found[key]
            if key.name:
                undecided = _find_undecided(key.name, runs[1].state, runs[2].state)
                value = _take_noise_out(value, wanted, undecided, trial.weights[key.name])
            difference = _compare(key, value, wanted, rounded[key], allowed)
            worst = max(worst, difference.relative)
            if not difference.holds:
                return Parity(f"{key.text} differs after call {call}: {difference.note}", worst, call)
    return Parity("", worst, num_calls)


class _Run(NamedTuple):
    executable: Executable
    state: DeviceState


class _Key(NamedTuple):
    """A tensor that is compared: tensors of one kind have about the same scale; `text` is for people.

    `name` is that of a weight.
    """

    kind: str
    text: str
    name: str = ""


def _tolerance_for(key: _Key, precision: torch.dtype, *, nothing: float) -> Tolerance:
    """Return what is allowed for a tensor; each of its elements may differ by `nothing`."""
    tolerances = _TOLERANCES[precision]
    return Tolerance(tolerances.results if key.kind.startswith("result") else tolerances.state, nothing)


def _perturb(state: DeviceState) -> DeviceState:
    """Change the weights of `state` in their last bit, up or down."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in state.parameters.values():
            change_last_bits(weight, generator)
    return state


def _collect_all(results: Sequence[torch.Tensor], state: DeviceState) -> Dict[_Key, torch.Tensor]:
    """Return all that a call returned and left, with names for people."""
    named = {_Key(f"result {index}", f"result {index}"): result for index, result in enumerate(results)}
    named.update({_Key("weight", f"weight `{name}`", name): weight for name, weight in state.parameters.items()})
    for replica, buffers in enumerate(state.buffers):
        where = f" of replica {replica}" if replica else ""
        named.update({_Key(f"buffer {name}", f"buffer `{name}`{where}"): value for name, value in buffers.items()})
    for name, slots in sorted(state.slots.items()):
        for slot, value in sorted(slots.items()):
            named[_Key(f"slot {slot}", f"optimizer state `{slot}` of `{name}`")] = value
    if state.loss_scale_factor is not None:
        named[_Key("factor", "the loss scaling's factor")] = state.loss_scale_factor
    if state.rng_state is not None:
        named[_Key(_STREAM, "the random stream")] = state.rng_state
    return {key: value.detach() for key, value in named.items()}


_STREAM = "stream"


def _measure_scales(values: Mapping[_Key, torch.Tensor]) -> Dict[str, float]:
    """Return the largest finite magnitude among the tensors of each kind."""
    scales: Dict[str, float] = {}
    for key, value in values.items():
        finite = value.nan_to_num(posinf=0.0, neginf=0.0) if value.is_floating_point() else value.reshape(-1)[:0]
        largest = largest_magnitude(finite)
        scales[key.kind] = max(scales.get(key.kind, 0.0), largest)
    return scales


def _compare(
    key: _Key, value: torch.Tensor, wanted: torch.Tensor, rounded: torch.Tensor, allowed: Tolerance
) -> Difference:
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        return _incomparable(key, f"{_describe_kind(value)} instead of {_describe_kind(wanted)}")
    if key.kind == _STREAM:
        is_same = torch.equal(value, wanted)
        return _no_difference(key) if is_same else _incomparable(key, "other random numbers were drawn")
    if not wanted.is_floating_point():
        return _compare_discrete(key, value, wanted, rounded)
    finite = wanted.isfinite()
    if not have_same_specials(value, wanted):
        # rounding alone may make a number overflow, or not
        is_explained = not have_same_specials(rounded, wanted)
        return _no_difference(key) if is_explained else _incomparable(key, "NaN or infinity in other places")
    scale, error = float(wanted[finite].double().norm()), distance_of(value[finite], wanted[finite])
    noise = distance_of(rounded[finite], wanted[finite])
    is_nothing = error <= allowed.absolute * math.sqrt(int(finite.sum()))
    if is_nothing or is_rounding(error, noise=noise, margin=_NOISE_MARGIN):
        return _no_difference(key)
    difference = _difference(key, error, scale=scale, allowed=allowed.relative * scale)
    text = f"by {difference.relative:.1e} relative, where {allowed.relative:.0e} is allowed"
    return difference if difference.holds else replace(difference, note=text)


def _difference(key: _Key, largest: float, *, scale: float, allowed: float, note: str = "") -> Difference:
    return Difference(kind=key.kind, name=key.text, step=0, largest=largest, scale=scale, allowed=allowed, note=note)


def _no_difference(key: _Key) -> Difference:
    return _difference(key, 0.0, scale=1.0, allowed=0.0)


def _incomparable(key: _Key, note: str) -> Difference:
    return _difference(key, math.inf, scale=1.0, allowed=0.0, note=note)


def _find_undecided(name: str, reference: DeviceState, rounded: DeviceState) -> Optional[torch.Tensor]:
    """Find the elements of a weight whose optimizer state rounding alone changes much; None where there is no state.

    Adam and its kin divide a gradient by its own size: a gradient that is nothing but rounding moves its weight as far
    as any other does, to one side or the other.
    """
    found = None
    for slot, value in reference.slots.get(name, {}).items():
        if value.shape == reference.parameters[name].shape and value.is_floating_point():
            is_noise = (rounded.slots[name][slot] - value).abs() > _UNDECIDED * value.abs()
            found = is_noise if found is None else found | is_noise
    return found


def _take_noise_out(
    value: torch.Tensor, wanted: torch.Tensor, undecided: Optional[torch.Tensor], start: torch.Tensor
) -> torch.Tensor:
    """Give the undecided elements of a weight their wanted values, unless they moved further than a step can."""
    if undecided is None or value.shape != wanted.shape or value.dtype != wanted.dtype:
        return value
    furthest = _FURTHEST * (wanted - start.to(wanted)).abs().max()
    return torch.where(undecided & ((value - wanted).abs() <= furthest), wanted, value)


def _compare_discrete(key: _Key, value: torch.Tensor, wanted: torch.Tensor, rounded: torch.Tensor) -> Difference:
    """Compare integers and bools: where two numbers are nearly equal, the larger one may be another."""
    share = float((value != wanted).double().mean()) if wanted.numel() else 0.0
    noise = float((rounded != wanted).double().mean()) if wanted.numel() else 0.0
    if share <= _FEW_FLIPS or is_rounding(share, noise=noise, margin=_NOISE_MARGIN):
        return _no_difference(key)
    return _difference(key, share, scale=1.0, allowed=_FEW_FLIPS, note=f"{share:.1%} of its elements")


def _describe_kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).replace('torch.', '')}{list(tensor.shape)}"


def empty_state(graph: StepGraph, request: BuildRequest) -> DeviceState:
    """Make the empty state that an executable of `graph` for `request` runs on."""
    state = DeviceState.for_graph(graph, replicas=request.plan.replicas, groups=request.replica_groups)
    if request.plan.adapts_loss_scaling:
        state.loss_scale_factor = torch.ones(())
    return state


def compare_with_replay(
    executable: Executable, laid_out_graph: StepGraph, *, graph: StepGraph, request: BuildRequest, trial: Trial
) -> Parity:
    """Compare `executable`, whose state is that of `laid_out_graph`, with plain replay of `graph`."""
    parity = check_parity(
        Side(executable, lambda: empty_state(laid_out_graph, request)),
        Side(ReplayExecutable(graph), lambda: empty_state(graph, request)),
        trial,
        num_calls=_MOST_CALLS if request.plan.iterations == 1 else 2,
        precision=working_type(graph),
    )
    if parity.holds and getattr(executable, "is_replaying", False):
        return replace(parity, difference="its programs do not fit the calls that they are for, which are replayed")
    return parity


_MOST_CALLS = 3
