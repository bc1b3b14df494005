"""A candidate that rounds otherwise passes; one that computes something else is named with the tensor and the call."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.comparison.random_rounding import RandomRounding
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.calls.memory_format import put_channels_last
from porting.engines.contract.trial import Trial
from porting.engines.parity import comparison as parity_module
from porting.engines.parity import replayed_calls as trials_module
from porting.engines.parity.comparison import compare_with_replay, find_working_type
from porting.engines.parity.replayed_calls import ReplayedCalls
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import host_tensors

# replay rounds otherwise where vectors are shorter
pytestmark = pytest.mark.vectors


class Changed:
    """Replay whose results or state `change(state, results, call)` spoils after each call."""

    name = "changed"

    def __init__(self, graph, change=lambda state, results, call: None, **options):
        self._replay = ReplayExecutable(graph, **options)
        self._change = change
        self._calls = 0

    def run(self, state, inputs, plan, **groups):
        results = self._replay.run(state, inputs, plan, **groups)
        self._calls += 1
        with torch.no_grad():
            self._change(state, results, self._calls)
        return results


class Rounded(ReplayExecutable):
    """Replay whose operators round as `rounding` says: by an example's seed just as that example does."""

    def __init__(self, graph, rounding):
        super().__init__(graph)
        self._rounding = rounding

    def run(self, *args, **kwargs):
        with self._rounding:
            return super().run(*args, **kwargs)


class Normed(nn.Module):
    """A convolution whose bias the normalisation takes away: its gradient is zero but for rounding."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, images):
        return self.last(torch.relu(self.norm(self.conv(images))).mean((2, 3)))


IMAGES = torch.randn(8, 2, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


@pytest.fixture
def compare(settings):
    """Give a function that compares an executable, made of a graph, with replay."""

    def compare(make, *, change_graph=lambda graph: graph, model=None, kind="SGD2", shared=None, **values):
        torch.manual_seed(0)
        model = model or Normed()
        graph = capture_step(model, [IMAGES, LABELS], loss=nn.functional.cross_entropy, mode="training")
        names = tuple(info.name for info in graph.parameters)
        request = BuildRequest(CallPlan(), groups=(settings(kind, **values),), group_names=(names,))
        weights = {host.name: host.tensor.detach() for host in host_tensors(model)}
        trial = Trial(weights, [IMAGES, LABELS.int()], request.plan, request.groups, request.group_names)
        changed = change_graph(graph)
        replays = None if shared is None else shared.setdefault("calls", ReplayedCalls(graph, request, trial))
        return compare_with_replay(make(changed), changed, graph=graph, request=request, trial=trial, replays=replays)

    return compare


def test_replay_agrees_with_itself(compare):
    parity = compare(ReplayExecutable)

    assert (parity.holds, parity.worst, parity.num_calls) == (True, 0.0, 3)


@pytest.mark.parametrize("kind", ["SGD2", "ADAM", "ADAMW", "LAMB"])
def test_rounding_in_another_order_is_no_difference(compare, kind):
    parity = compare(
        lambda graph: ReplayExecutable(graph, Choice(fused_update=True)),
        change_graph=put_channels_last,
        kind=kind,
        momentum=0.9 if kind == "SGD2" else 0.0,
        learning_rate=0.01,
    )

    assert parity.holds, parity.difference


def wrong_result(state, results, call):
    results[0].mul_(1.0 + 1e-3)


def wrong_weight(state, results, call):
    if call == 2:
        state.parameters["last.weight"].mul_(1.0 + 1e-2)


def wrong_slot(state, results, call):
    state.slots["conv.weight"]["Accl1"].mul_(1.1)


def wrong_buffer(state, results, call):
    state.buffers[0]["norm.running_mean"].zero_()


def not_a_number(state, results, call):
    results[0][0, 0] = math.nan


def wrong_numbers_drawn(state, results, call):
    state.rng_state = torch.Generator().manual_seed(call).get_state()


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (wrong_result, "result 0 differs after call 1: by 1"),
        (wrong_weight, "weight `last.weight` differs after call 2: by 1"),
        (wrong_slot, "optimizer state `Accl1` of `conv.weight` differs after call 1: by 1.0e-01 relative"),
        (wrong_buffer, "buffer `norm.running_mean` differs after call 1: by 1.0e+00 relative"),
        (not_a_number, "result 0 differs after call 1: NaN or infinity in other places"),
        (wrong_numbers_drawn, "the random stream differs after call 1: other random numbers were drawn"),
    ],
)
def test_the_first_difference_is_named(compare, change, difference):
    parity = compare(lambda graph: Changed(graph, change), momentum=0.9)

    assert not parity.holds
    assert parity.difference.startswith(difference)


def test_rounding_is_looked_at_only_where_something_differs(compare, monkeypatch):
    # what would be made for it cannot be called
    monkeypatch.setattr(trials_module, "change_weights", None)

    assert compare(ReplayExecutable).holds


@pytest.mark.parametrize("most_kept", [0, 1 << 30])
def test_several_candidates_are_compared_with_the_same_calls(compare, monkeypatch, most_kept):
    monkeypatch.setattr(trials_module, "_MOST_KEPT_BYTES", most_kept)
    given = {"shared": {}, "momentum": 0.9}

    assert compare(ReplayExecutable, **given).holds
    changed = compare(lambda graph: Changed(graph, wrong_weight), **given)
    assert changed.difference.startswith("weight `last.weight` differs after call 2")
    assert compare(ReplayExecutable, change_graph=put_channels_last, **given).holds


def test_a_large_step_is_replayed_once_for_all_tensors_that_differ(compare, monkeypatch):
    made = []
    monkeypatch.setattr(trials_module, "ReplayExecutable", lambda graph: made.append(graph) or ReplayExecutable(graph))
    monkeypatch.setattr(trials_module, "_MOST_KEPT_BYTES", 0)
    monkeypatch.setattr(trials_module, "change_weights", lambda *args: None)
    monkeypatch.setitem(parity_module._TOLERANCES, torch.float32, parity_module._Tolerances(0.0, 0.0))

    parity = compare(lambda graph: Rounded(graph, RandomRounding(1)), momentum=0.9)

    assert parity.holds, parity.difference
    assert len(made) == 2  # as it is and rounded


def test_a_tensor_that_one_example_moves_little_is_given_others(compare, monkeypatch):
    asked = []

    def round_from_the_third_on(example):
        asked.append(example)
        return RandomRounding(example) if example > 2 else nullcontext()

    monkeypatch.setattr(trials_module, "RandomRounding", round_from_the_third_on)
    monkeypatch.setattr(trials_module, "change_weights", lambda *args: None)

    assert not compare(lambda graph: Rounded(graph, RandomRounding(20, relative=1e-2))).holds
    assert asked == list(range(1, 9))
    asked.clear()
    monkeypatch.setitem(parity_module._TOLERANCES, torch.float32, parity_module._Tolerances(0.0, 0.0))
    parity = compare(lambda graph: Rounded(graph, RandomRounding(3)))
    assert parity.holds, parity.difference
    assert asked[:3] == [1, 2, 3]


def test_an_update_that_is_a_little_different_is_found_out(compare):
    def change(state, results, call):
        if call == 1:
            state.parameters["conv.weight"].add_(1e-3 * state.parameters["conv.weight"].abs())

    assert not compare(lambda graph: Changed(graph, change)).holds


def test_nan_in_the_same_places_is_no_difference(compare):
    class Undefined(Normed):
        def forward(self, images):
            return super().forward(images) + torch.full((1,), math.nan)

    assert compare(ReplayExecutable, model=Undefined()).holds


def test_what_a_candidate_raises_comes_through(compare):
    def fail(state, results, call):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        compare(lambda graph: Changed(graph, fail))


@pytest.mark.parametrize(("dtype", "working"), [(torch.float32, torch.float32), (torch.float16, torch.float16)])
def test_the_coarsest_type_of_the_graph_counts(dtype, working):
    class Model(nn.Module):
        def forward(self, x):
            return x.to(dtype) * 2

    assert find_working_type(capture_step(Model(), [torch.ones(2)], mode="inference")) == working


def test_an_optimizer_that_makes_steps_of_noise_may_make_them_to_the_other_side(compare):
    def turn_round(state, results, call):
        moved = 1e-3 * state.slots["conv.bias"]["Accl1"].sign()
        state.parameters["conv.bias"].add_(2 * moved if call == 1 else 0.0)

    assert compare(lambda graph: Changed(graph, turn_round), kind="ADAM", learning_rate=1e-3).holds


def test_a_weight_of_noise_that_moves_further_than_a_step_is_found_out(compare):
    def move_far(state, results, call):
        state.parameters["conv.bias"].add_(0.1)

    assert not compare(lambda graph: Changed(graph, move_far), kind="ADAM", learning_rate=1e-3).holds


def test_a_step_of_adam_to_the_wrong_side_is_found_out(compare):
    def turn_round(state, results, call):
        state.parameters["last.weight"].add_(-2e-3 * state.slots["last.weight"]["Accl1"].sign())

    assert not compare(lambda graph: Changed(graph, turn_round), kind="ADAM", learning_rate=1e-3).holds
