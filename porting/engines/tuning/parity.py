"""Does a candidate compute what replay computes? Both run from equal states; all that they leave is compared.

Two correct programs round differently, and a step can magnify that: the direction of Adam's step for a gradient that
is zero but for rounding is noise, and many layers of BatchNorm pass on more than they get. So a third run, of replay
itself with each operator's result rounded at random, measures how far rounding alone carries each tensor; a candidate
may differ by that much, times a margin, where the fixed tolerance is exceeded. What an optimizer makes of a gradient
that is nothing but rounding is not compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from ...capture import StepGraph
from ...capture.plain_values import dtype_name
from ...comparison import is_rounding
from ...comparison.tensors import change_last_bits, distance_of, have_same_specials, largest_magnitude
from ..calls.call_plan import CallPlan
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest, Executable
from ..replay.replay import ReplayExecutable

__all__ = ["Parity", "RandomRounding", "Trial", "compare_with_replay", "find_working_type", "make_empty_state"]


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
    executable: Executable, laid_out_graph: StepGraph, *, graph: StepGraph, request: BuildRequest, trial: Trial
) -> Parity:
    """Compare `executable`, whose state is that of `laid_out_graph`, with plain replay of `graph`.

    Both run a few calls of `trial`; all that they return and leave is compared. Whatever the candidate raises comes
    through.
    """
    replay = ReplayExecutable(graph)
    candidate, reference, other = (
        trial.prepare(make_empty_state(one, request)) for one in (laid_out_graph, graph, graph)
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in other.parameters.values():
            change_last_bits(weight, generator)
    rounding, worst, tolerances = RandomRounding(), 0.0, _TOLERANCES[find_working_type(graph)]
    num_calls = 3 if request.plan.iterations == 1 else 2
    for call in range(1, num_calls + 1):
        found = _collect_all(trial.run(executable, candidate), candidate)
        expected = _collect_all(trial.run(replay, reference), reference)
        with rounding:
            rounded = _collect_all(trial.run(replay, other), other)
        if list(found) != list(expected):
            return Parity(f"it has other results than replay after call {call}", worst, call)
        scales = _measure_scales(expected)
        for key, wanted in expected.items():
            value = found[key]
            if key.name and value.shape == wanted.shape and value.dtype == wanted.dtype:
                value = _take_noise_out(value, wanted, _find_noise(key.name, reference, other), trial.weights[key.name])
            allowed = tolerances.results if key.kind.startswith("result") else tolerances.state
            relative, note = _compare_tensors(
                key, value, wanted, rounded[key], allowed=allowed, nothing=_NOTHING * scales[key.kind]
            )
            worst = max(worst, relative)
            if note:
                return Parity(f"{key.text} differs after call {call}: {note}", worst, call)
    if getattr(executable, "is_replaying", False):
        note = "its programs do not fit the calls that they are for, which are replayed"
        return Parity(note, worst, num_calls)
    return Parity("", worst, num_calls)


class _Key(NamedTuple):
    """A tensor that is compared: those of a `kind` have about one scale, `text` is for people, `name` a weight's."""

    kind: str
    text: str
    name: str = ""


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
    key: _Key, value: torch.Tensor, wanted: torch.Tensor, rounded: torch.Tensor, *, allowed: float, nothing: float
) -> Tuple[float, str]:
    """Return the relative difference, 0 if it is nothing but rounding; and what to say of one that is too large."""
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        kinds = (f"{dtype_name(tensor.dtype)}{list(tensor.shape)}" for tensor in (value, wanted))
        return math.inf, " instead of ".join(kinds)
    if key.kind == "stream":
        return (0.0, "") if torch.equal(value, wanted) else (math.inf, "other random numbers were drawn")
    if not wanted.is_floating_point():
        share = float((value != wanted).double().mean()) if wanted.numel() else 0.0
        noise = float((rounded != wanted).double().mean()) if wanted.numel() else 0.0
        is_explained = share <= _FEW_FLIPS or is_rounding(share, noise=noise, margin=_NOISE_MARGIN)
        return (0.0, "") if is_explained else (share, f"{share:.1%} of its elements")
    finite = wanted.isfinite()
    if not have_same_specials(value, wanted):
        # rounding alone may make a number overflow, or not
        is_explained = not have_same_specials(rounded, wanted)
        return (0.0, "") if is_explained else (math.inf, "NaN or infinity in other places")
    scale, error = float(wanted[finite].double().norm()), distance_of(value[finite], wanted[finite])
    noise = distance_of(rounded[finite], wanted[finite])
    is_nothing = error <= nothing * math.sqrt(int(finite.sum()))
    if is_nothing or is_rounding(error, noise=noise, margin=_NOISE_MARGIN):
        return 0.0, ""
    relative = error / scale if scale else math.inf
    is_allowed = error <= allowed * scale
    return relative, "" if is_allowed else f"by {relative:.1e} relative, where {allowed:.0e} is allowed"


def _find_noise(name: str, reference: DeviceState, rounded: DeviceState) -> torch.Tensor:
    """Find the elements of a weight whose optimizer state rounding alone changes much."""
    # Adam and its kin divide a gradient by its own size: one that is nothing but rounding moves its weight as far as
    # any other does, to one side or the other.
    found = torch.zeros(reference.parameters[name].shape, dtype=torch.bool)
    for slot, value in reference.slots.get(name, {}).items():
        if value.shape == reference.parameters[name].shape and value.is_floating_point():
            found |= (rounded.slots[name][slot] - value).abs() > _UNDECIDED * value.abs()
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


# -- replay that is rounded at random ----------------------------------------------------------------------------------


# An error of a mean or a variance is one for all elements that share it, and no later sum takes it away. And the
# logarithm of a probability near 1 is the small difference of two numbers of an ordinary size.
_MADE_OF_SUMS = {
    torch.ops.aten._log_softmax,
    *(
        getattr(torch.ops.aten, f"native_{kind}_norm{direction}")
        for kind in ("batch", "group", "layer")
        for direction in ("", "_backward")
    ),
}


class RandomRounding(TorchDispatchMode):
    """Within it every operator's new floating-point results are changed by some units in the last place.

    Whole numbers are kept: masks, counts and one-hot codes are exact however they are computed. Results that are views,
    or that an operator writes in place, are kept as well. The global random stream is not touched.

    This is random rounding as in stochastic arithmetic (Vignes, "A stochastic arithmetic for reliable scientific
    computation", Math. Comput. Simul. 35, 1993): how far such a run spreads estimates what the order of sums, fused
    operators and other kernels may change, however deep the step and however it magnifies.
    """

    def __init__(self, seed: int = 1) -> None:
        """Start a random stream for the signs of the changes."""
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Mapping[str, Any]] = None
    ) -> Any:
        """Run `func`, or the operators that it is made of, then round its results otherwise."""
        parts = decomposition_table.get(func) if func.overloadpacket in _MADE_OF_SUMS else None
        if parts is not None:
            # Taken apart, because an error of the sums is shared by many elements; the parts are rounded in here again.
            with self:
                return parts(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, (tuple, list)) else [result]
        for returned, value in zip(func._schema.returns, results):
            if returned.alias_info is None and isinstance(value, torch.Tensor):
                change_last_bits(value, self._generator)
        return result
