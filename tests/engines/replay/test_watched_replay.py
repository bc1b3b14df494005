"""A watcher is told of a replayed call what it would be told of plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.api.rehearsals import rehearse
from porting.engines.replay.watched_replay import read_state, watch_replay
from tests.observe.watchers import Notes


class Net(nn.Module):
    """A layer with statistics, and a mask with minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x)).masked_fill(x[:, :3] < -9, -float("inf"))


def make_port(**options: Any) -> Any:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options), device="sim")
    batch = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)
    ported.compile(*batch)
    return ported, batch, rehearse(ported.port, ported.device_executor, batch, {})


def watch(**options: Any) -> Notes:
    notes = Notes()
    watch_replay(make_port(**options)[2], notes)()
    return notes


def test_passes_and_updates_are_told_in_their_order() -> None:
    notes = watch(accumulation=2, device_iterations=2)

    passes = [event for event in notes.events if event.isupper()]
    assert passes == [*["END OF FORWARD", "BACKWARD"] * 2, "UPDATE"] * 2


def test_operators_have_the_names_modules_and_lines_of_the_capture() -> None:
    notes = watch()

    first = notes.calls[0].operator
    assert (first.name, first.module_path) == ("aten.linear.default", "layer")
    assert first.place is not None
    assert first.place.file == __file__


def test_what_enters_an_operator_is_named_as_the_user_names_it() -> None:
    notes = watch()

    assert notes.inputs[0] == [("input_0", "input"), ("layer.weight", "parameter"), ("layer.bias", "parameter")]


def test_an_infinite_argument_is_told() -> None:
    calls = {call.operator.name: call.operands.names_infinity for call in watch().calls}

    assert [name for name, is_infinite in calls.items() if is_infinite] == ["aten.masked_fill.Scalar"]


def test_a_pass_ends_with_its_loss_and_the_buffers_that_it_has_written() -> None:
    (results,) = watch().results

    assert results.loss is not None
    assert results.loss.shape == ()
    assert list(results.buffers) == ["norm.running_mean", "norm.running_var"]
    assert results.has_backward


@pytest.mark.parametrize(("reduction", "seed", "factor"), [("mean", 0.5, 1.0), ("sum", 1.0, 1.0)])
def test_a_backward_pass_is_told_what_its_loss_counts(reduction: str, seed: float, factor: float) -> None:
    backward = watch(accumulation=2, reduction=reduction).backwards[0]

    assert (backward.seed, backward.factor) == (seed, factor)
    assert "layer.weight" in backward.parameters


def test_an_update_leaves_parameters_buffers_and_the_optimizer_s_state() -> None:
    (state,) = watch().states

    assert "layer.weight" in state.parameters
    assert "norm.running_mean" in state.buffers
    assert list(state.slots) == list(state.parameters)


def test_a_watched_call_trains_as_a_call_does() -> None:
    ported, batch, rehearsal = make_port(accumulation=2)

    watch_replay(rehearsal, Notes())()
    ported(*batch)

    trained = ported.state_dict()
    for name, value in read_state(rehearsal.state).parameters.items():
        assert torch.equal(value, trained[name])
