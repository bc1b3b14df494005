"""Does a candidate compute what replay computes? Both run from equal states; all that they leave is compared.

Two correct programs round differently, and a step can magnify that: the direction of Adam's step for a gradient that
is zero but for rounding is noise, and many layers of BatchNorm pass on more than they get. So further runs, of replay
itself with each operator's result rounded at random, measure how far rounding alone carries each tensor; a candidate
may differ by as much as one of them does, times a margin, where the fixed tolerance is exceeded. What an optimizer
makes of a gradient that is nothing but rounding is not compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, Mapping, NamedTuple, Optional, Tuple

import torch

from ...capture import StepGraph
from ...capture.plain_values import dtype_name
from ...comparison.noise import NOTHING, UNDECIDED, Noise
from ...comparison.tensors import distance_of, have_same_specials, largest_magnitude
from ..calls.executable import BuildRequest, Executable, make_empty_state
from ..contract.trial import Trial
from .replayed_calls import SLOT, WEIGHT, Key, ReplayedCalls, collect_all

__all__ = ["Parity", "compare_with_replay", "count_compared_calls", "find_working_type"]


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
# How far noise may move a weight, beside the furthest that the step moves any weight of the tensor.
_FURTHEST = 3.0
_FEW_FLIPS = 1e-3
# Differences of shorter numbers are rounded too much.
_SINGLE_BYTES = 4
# How many examples of generous rounding errors are run at most, each only if a tensor is out of the bands of those
# before: an error that a few numbers decide is by chance a quarter of another one in every seventh case, and there are
# hundreds of tensors.
_MOST_EXAMPLES = 8


def find_working_type(graph: StepGraph) -> torch.dtype:
    """Return the coarsest type of numbers that `graph` computes in.

    >>> from porting.capture import capture_step
    >>> find_working_type(capture_step(torch.nn.Linear(2, 1), [torch.ones(1, 2)], mode="inference"))
    torch.float32
    """
    values = (node.meta.get("val") for node in graph.graph.nodes)
    found = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    return max(found & set(_TOLERANCES), key=lambda dtype: _TOLERANCES[dtype], default=torch.float32)


def count_compared_calls(request: BuildRequest) -> int:
    """Return how many calls `compare_with_replay` runs: the second one starts from what the first one left."""
    return 3 if request.plan.iterations == 1 else 2


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
    num_calls = count_compared_calls(request)
    for call in range(1, num_calls + 1):
        found = collect_all(trial.run(executable, candidate), candidate)
        expected = replays.collect(call)
        if list(found) != list(expected):
            return Parity(f"it has other results than replay after call {call}", worst, call)
        comparison = _Comparison(expected, tolerances)
        differing: Dict[Key, torch.Tensor] = {}
        for key in expected:
            relative, note = comparison.compare(key, found[key])
            if note:
                differing[key] = found[key]
            else:
                worst = max(worst, relative)
        # Only now is it worth finding out what rounding may do: that takes many times as long as replay.
        for example in range(1, _MOST_EXAMPLES + 1):
            if differing:
                rounded = replays.collect(call, example=example)
                differing = comparison.collect_unexplained(differing, rounded, trial.weights)
        if differing:
            key, value = next(iter(differing.items()))
            relative, note = comparison.compare(key, value)
            return Parity(f"{key.text} differs after call {call}: {note}", max(worst, relative), call)
    if getattr(executable, "is_replaying", False):
        note = "its programs do not fit the calls that they are for, which are replayed"
        return Parity(note, worst, num_calls)
    return Parity("", worst, num_calls)


class _Comparison:
    """The tensors of one call with what is expected of them."""

    def __init__(self, expected: Mapping[Key, torch.Tensor], tolerances: _Tolerances) -> None:
        self._expected, self._tolerances = expected, tolerances
        self._scales = _measure_scales(expected)

    def collect_unexplained(
        self,
        differing: Mapping[Key, torch.Tensor],
        rounded: Mapping[Key, torch.Tensor],
        start: Mapping[str, torch.Tensor],
    ) -> Dict[Key, torch.Tensor]:
        """Return those that one example of rounding does not explain; weights without the elements that it may turn.

        `start` are the weights before the first call.
        """
        unexplained = {}
        for key, value in differing.items():
            wanted = self._expected[key]
            if key.kind == WEIGHT and value.shape == wanted.shape and value.dtype == wanted.dtype:
                noise = _find_noise(key.name, self._expected, rounded)
                value = _take_noise_out(value, wanted, noise, start[key.name])
            if self.compare(key, value, rounded[key])[1]:
                unexplained[key] = value
        return unexplained

    def compare(self, key: Key, value: torch.Tensor, rounded: Optional[torch.Tensor] = None) -> Tuple[float, str]:
        """Return the relative difference, 0 if it is nothing but rounding; and what to say of one that is too large.

        `rounded` is what rounding makes of the expected tensor; without it, the tolerances alone count.
        """
        wanted = self._expected[key]
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            kinds = (f"{dtype_name(tensor.dtype)}{list(tensor.shape)}" for tensor in (value, wanted))
            return math.inf, " instead of ".join(kinds)
        if key.kind == "stream":
            return (0.0, "") if torch.equal(value, wanted) else (math.inf, "other random numbers were drawn")
        if not wanted.is_floating_point():
            return _compare_whole_numbers(value, wanted, rounded)
        allowed = self._tolerances.results if key.kind.startswith("result") else self._tolerances.state
        return _compare_numbers(value, wanted, rounded, allowed=allowed, nothing=NOTHING * self._scales[key.kind])


def _measure_scales(values: Mapping[Key, torch.Tensor]) -> Dict[str, float]:
    """Return the largest finite magnitude among the tensors of each kind."""
    scales: Dict[str, float] = {}
    for key, value in values.items():
        finite = value.nan_to_num(posinf=0.0, neginf=0.0) if value.is_floating_point() else value.reshape(-1)[:0]
        scales[key.kind] = max(scales.get(key.kind, 0.0), largest_magnitude(finite))
    return scales


def _compare_whole_numbers(
    value: torch.Tensor, wanted: torch.Tensor, rounded: Optional[torch.Tensor]
) -> Tuple[float, str]:
    share = _find_share(value, wanted)
    noise = 0.0 if rounded is None else _find_share(rounded, wanted)
    return (0.0, "") if Noise(noise, least=_FEW_FLIPS).explains(share) else (share, f"{share:.1%} of its elements")


def _compare_numbers(
    value: torch.Tensor, wanted: torch.Tensor, rounded: Optional[torch.Tensor], *, allowed: float, nothing: float
) -> Tuple[float, str]:
    scale, error, count = _find_norm(wanted), _find_norm(value - wanted), wanted.numel()
    if not math.isfinite(error) or not math.isfinite(scale) or wanted.element_size() < _SINGLE_BYTES:
        if not have_same_specials(value, wanted):
            # rounding alone may make a number overflow, or not
            is_explained = rounded is not None and not have_same_specials(rounded, wanted)
            return (0.0, "") if is_explained else (math.inf, "NaN or infinity in other places")
        finite = wanted.isfinite()
        scale, error, count = _find_norm(wanted[finite].double()), distance_of(value, wanted), int(finite.sum())
    noise = 0.0 if rounded is None else distance_of(rounded, wanted)
    if Noise(noise, least=nothing * math.sqrt(count)).explains(error):
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


def _find_noise(name: str, expected: Mapping[Key, torch.Tensor], rounded: Mapping[Key, torch.Tensor]) -> torch.Tensor:
    """Find the elements of a weight whose optimizer state rounding alone changes much."""
    # Adam and its kin divide a gradient by its own size: one that is nothing but rounding moves its weight as far as
    # any other does, to one side or the other.
    weight = next(value for key, value in expected.items() if (key.kind, key.name) == (WEIGHT, name))
    found = torch.zeros(weight.shape, dtype=torch.bool)
    for key, value in expected.items():
        is_slot = key.kind.startswith(SLOT) and key.name == name
        if is_slot and value.shape == weight.shape and value.is_floating_point():
            found |= (rounded[key] - value).abs() > UNDECIDED * value.abs()
    return found


def _take_noise_out(
    value: torch.Tensor, wanted: torch.Tensor, is_noise: torch.Tensor, start: torch.Tensor
) -> torch.Tensor:
    """Give the elements of a weight that are noise their wanted values, unless they moved further than a step can."""
    if not bool(is_noise.any()):
        return value
    furthest = _FURTHEST * (wanted - start.to(wanted)).abs().max()
    return torch.where(is_noise & ((value - wanted).abs() <= furthest), wanted, value)
