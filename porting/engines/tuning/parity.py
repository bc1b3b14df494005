"""Does a candidate compute what replay computes? Both run from equal states; all that they leave is compared.

Two correct programs round differently, and a step can magnify that: the direction of Adam's step for a gradient that
is zero but for rounding is noise, and many layers of BatchNorm pass on more than they get. So a third run, of replay
itself with each operator's result rounded at random, measures how far rounding alone carries each tensor; a candidate
may differ by that much, times a margin, where the fixed tolerance is exceeded. What an optimizer makes of a gradient
that is nothing but rounding is not compared.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...capture.plain_values import dtype_name
from ...comparison import is_rounding
from ...comparison.random_rounding import RandomRounding
from ...comparison.tensors import change_last_bits, distance_of, have_same_specials, largest_magnitude
from ..calls.call_plan import CallPlan
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest, Executable
from ..replay.replay import ReplayExecutable

__all__ = ["Parity", "ReplayedCalls", "Trial", "compare_with_replay", "find_working_type", "make_empty_state"]


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
# Differences of shorter numbers are rounded too much.
_SINGLE_BYTES = 4
# What one call of replay leaves is kept for other candidates if it is no larger; there are up to six of them.
_MOST_KEPT_BYTES = 64 << 20
_WEIGHT, _SLOT = "weight", "slot "


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

    `worst` is the largest relative difference of all tensors that were compared, but for those that were found to be
    nothing but rounding.
    """

    difference: str = ""
    worst: float = 0.0
    num_calls: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing differs by more than rounding explains."""
        return not self.difference


def find_working_type(graph: StepGraph) -> torch.dtype:
    """Return the coarsest type of numbers that `graph` computes in.

    >>> from porting.capture import capture_step
    >>> find_working_type(capture_step(torch.nn.Linear(2, 1), [torch.ones(1, 2)], mode="inference"))
    torch.float32
    """
    values = (node.meta.get("val") for node in graph.graph.nodes)
    found = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    return max(found & set(_TOLERANCES), key=lambda dtype: _TOLERANCES[dtype], default=torch.float32)


def compare_with_replay(
    executable: Executable,
    laid_out_graph: StepGraph,
    *,
    graph: StepGraph,
    request: BuildRequest,
    trial: Trial,
    replays: Optional[ReplayedCalls] = None,
) -> Parity:
    """Compare `executable`, whose state is that of `laid_out_graph`, with plain replay of `graph`.

    Both run a few calls of `trial`; all that they return and leave is compared. Whatever the candidate raises comes
    through. `replays` are the calls of replay, if several candidates are compared with them.
    """
    replays = ReplayedCalls(graph, request, trial) if replays is None else replays
    candidate = trial.prepare(make_empty_state(laid_out_graph, request))
    worst, tolerances = 0.0, _TOLERANCES[find_working_type(graph)]
    num_calls = 3 if request.plan.iterations == 1 else 2
    for call in range(1, num_calls + 1):
        found = _collect_all(trial.run(executable, candidate), candidate)
        expected = replays.find(call)
        if list(found) != list(expected):
            return Parity(f"it has other results than replay after call {call}", worst, call)
        scales = _measure_scales(expected)
        for key, wanted in expected.items():
            allowed = tolerances.results if key.kind.startswith("result") else tolerances.state
            nothing = _NOTHING * scales[key.kind]
            relative, note = _compare_tensors(key, found[key], wanted, None, allowed=allowed, nothing=nothing)
            if note:
                # Only now is it worth finding out what rounding may do: that takes many times as long as replay.
                rounded, value = replays.find(call, is_rounded=True), found[key]
                if key.kind == _WEIGHT and value.shape == wanted.shape and value.dtype == wanted.dtype:
                    noise = _find_noise(key.name, expected, rounded)
                    value = _take_noise_out(value, wanted, noise, trial.weights[key.name])
                relative, note = _compare_tensors(key, value, wanted, rounded[key], allowed=allowed, nothing=nothing)
            worst = max(worst, relative)
            if note:
                return Parity(f"{key.text} differs after call {call}: {note}", worst, call)
    if getattr(executable, "is_replaying", False):
        note = "its programs do not fit the calls that they are for, which are replayed"
        return Parity(note, worst, num_calls)
    return Parity("", worst, num_calls)


class ReplayedCalls:
    """What replay returns and leaves after each call of a trial, as it is and rounded at random; run when asked for.

    What fits into some memory is kept for the next candidate; otherwise it is run again.
    """

    def __init__(self, graph: StepGraph, request: BuildRequest, trial: Trial) -> None:
        """Run nothing yet."""
        self._series = {is_rounded: _Series(graph, request, trial, is_rounded) for is_rounded in (False, True)}

    def find(self, call: int, *, is_rounded: bool = False) -> Dict[_Key, torch.Tensor]:
        """Return all that there is after a call, of which the first is 1; only valid until the next `find`."""
        return self._series[is_rounded].find(call)


class _Series:
    """The calls of one training by replay."""

    def __init__(self, graph: StepGraph, request: BuildRequest, trial: Trial, is_rounded: bool) -> None:
        self._graph, self._request, self._trial, self._is_rounded = graph, request, trial, is_rounded
        self._kept: Dict[int, Dict[_Key, torch.Tensor]] = {}
        self._start()

    def _start(self) -> None:
        self._num_calls = 0
        self._last: Dict[_Key, torch.Tensor] = {}
        self._state: Optional[DeviceState] = None
        self._rounding = RandomRounding()

    def find(self, call: int) -> Dict[_Key, torch.Tensor]:
        if call in self._kept:
            return self._kept[call]
        # asked for again and again, by each tensor that differs
        if call == self._num_calls:
            return self._last
        if call < self._num_calls:
            self._start()
        if self._state is None:
            self._state = self._make_state()
        replay = ReplayExecutable(self._graph)
        while self._num_calls < call:
            with self._rounding if self._is_rounded else nullcontext():
                results = self._trial.run(replay, self._state)
            self._num_calls += 1
        self._last = _collect_all(results, self._state)
        if sum(value.numel() * value.element_size() for value in self._last.values()) <= _MOST_KEPT_BYTES:
            # the state goes on
            self._kept[call] = {key: value.clone() for key, value in self._last.items()}
        return self._last

    def _make_state(self) -> DeviceState:
        state = self._trial.prepare(make_empty_state(self._graph, self._request))
        if self._is_rounded:
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for weight in state.parameters.values():
                    change_last_bits(weight, generator)
        return state


class _Key(NamedTuple):
    """A tensor that is compared: those of a `kind` have about one scale, `text` is for people.

    `name` is that of the weight, also for the states that an optimizer keeps for it.
    """

    kind: str
    text: str
    name: str = ""


def _collect_all(results: Sequence[torch.Tensor], state: DeviceState) -> Dict[_Key, torch.Tensor]:
    """Return all that a call returned and left, with names for people."""
    named = {_Key(f"result {index}", f"result {index}"): result for index, result in enumerate(results)}
    named.update({_Key(_WEIGHT, f"weight `{name}`", name): weight for name, weight in state.parameters.items()})
    for replica, buffers in enumerate(state.buffers):
        where = f" of replica {replica}" if replica else ""
        named.update({_Key(f"buffer {name}", f"buffer `{name}`{where}"): value for name, value in buffers.items()})
    for name, slots in sorted(state.slots.items()):
        for slot, value in sorted(slots.items()):
            named[_Key(f"{_SLOT}{slot}", f"optimizer state `{slot}` of `{name}`", name)] = value
    if state.loss_scale_factor is not None:
        named[_Key("factor", "the loss scaling's factor")] = state.loss_scale_factor
    if state.rng_state is not None:
        named[_Key("stream", "the random stream")] = state.rng_state
    return {key: value.detach() for key, value in named.items()}


def _measure_scales(values: Mapping[_Key, torch.Tensor]) -> Dict[str, float]:
    """Return the largest finite magnitude among the tensors of each kind."""
    scales: Dict[str, float] = {}
    for key, value in values.items():
        finite = value.nan_to_num(posinf=0.0, neginf=0.0) if value.is_floating_point() else value.reshape(-1)[:0]
        scales[key.kind] = max(scales.get(key.kind, 0.0), largest_magnitude(finite))
    return scales


def _compare_tensors(
    key: _Key,
    value: torch.Tensor,
    wanted: torch.Tensor,
    rounded: Optional[torch.Tensor],
    *,
    allowed: float,
    nothing: float,
) -> Tuple[float, str]:
    """Return the relative difference, 0 if it is nothing but rounding; and what to say of one that is too large.

    `rounded` is what rounding makes of `wanted`; without it, the tolerances alone count.
    """
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        kinds = (f"{dtype_name(tensor.dtype)}{list(tensor.shape)}" for tensor in (value, wanted))
        return math.inf, " instead of ".join(kinds)
    if key.kind == "stream":
        return (0.0, "") if torch.equal(value, wanted) else (math.inf, "other random numbers were drawn")
    if not wanted.is_floating_point():
        share = _find_share(value, wanted)
        noise = 0.0 if rounded is None else _find_share(rounded, wanted)
        is_explained = share <= _FEW_FLIPS or is_rounding(share, noise=noise, margin=_NOISE_MARGIN)
        return (0.0, "") if is_explained else (share, f"{share:.1%} of its elements")
    scale, error, count = _find_norm(wanted), _find_norm(value - wanted), wanted.numel()
    if not math.isfinite(error) or not math.isfinite(scale) or wanted.element_size() < _SINGLE_BYTES:
        if not have_same_specials(value, wanted):
            # rounding alone may make a number overflow, or not
            is_explained = rounded is not None and not have_same_specials(rounded, wanted)
            return (0.0, "") if is_explained else (math.inf, "NaN or infinity in other places")
        finite = wanted.isfinite()
        scale, error, count = _find_norm(wanted[finite].double()), distance_of(value, wanted), int(finite.sum())
    noise = 0.0 if rounded is None else distance_of(rounded, wanted)
    is_nothing = error <= nothing * math.sqrt(count)
    if is_nothing or is_rounding(error, noise=noise, margin=_NOISE_MARGIN):
        return 0.0, ""
    relative = error / scale if scale else math.inf
    is_allowed = error <= allowed * scale
    return relative, "" if is_allowed else f"by {relative:.1e} relative, where {allowed:.0e} is allowed"


def _find_norm(tensor: torch.Tensor) -> float:
    """Return the length of a tensor as a vector, added up in double precision; of half types it is only a guess."""
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))


def _find_share(value: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the share of elements that are different."""
    return float((value != wanted).double().mean()) if wanted.numel() else 0.0


def _find_noise(name: str, expected: Mapping[_Key, torch.Tensor], rounded: Mapping[_Key, torch.Tensor]) -> torch.Tensor:
    """Find the elements of a weight whose optimizer state rounding alone changes much."""
    # Adam and its kin divide a gradient by its own size: one that is nothing but rounding moves its weight as far as
    # any other does, to one side or the other.
    weight = next(value for key, value in expected.items() if (key.kind, key.name) == (_WEIGHT, name))
    found = torch.zeros(weight.shape, dtype=torch.bool)
    for key, value in expected.items():
        is_slot = key.kind.startswith(_SLOT) and key.name == name
        if is_slot and value.shape == weight.shape and value.is_floating_point():
            found |= (rounded[key] - value).abs() > _UNDECIDED * value.abs()
    return found


def _take_noise_out(
    value: torch.Tensor, wanted: torch.Tensor, is_noise: torch.Tensor, start: torch.Tensor
) -> torch.Tensor:
    """Give the elements of a weight that are noise their wanted values, unless they moved further than a step can."""
    if not bool(is_noise.any()):
        return value
    furthest = _FURTHEST * (wanted - start.to(wanted)).abs().max()
    return torch.where(is_noise & ((value - wanted).abs() <= furthest), wanted, value)


def make_empty_state(graph: StepGraph, request: BuildRequest) -> DeviceState:
    """Make the empty state that an executable of `graph` for `request` runs on."""
    state = DeviceState.for_graph(graph, replicas=request.plan.replicas, groups=request.replica_groups)
    if request.plan.adapts_loss_scaling:
        state.loss_scale_factor = torch.ones(())
    return state
