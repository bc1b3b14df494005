"""A training that changes its engine between two calls is the training that never did."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.engines import load_engine
from porting.engines.calls.executable import Choice
from porting.engines.calls.memory_format import lay_out
from porting.engines.contract.report import TuningReport
from porting.executables.background import BackgroundTuning
from porting.simulator._device import engine_change


class Net(nn.Module):
    """Everything that a state has: statistics, random numbers, and weights in two possible layouts."""

    def __init__(self):
        super().__init__()
        # a bias in front of BatchNorm has a gradient of nothing but rounding, which Adam turns into steps
        self.conv, self.norm = nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.conv(x)))).mean((2, 3)))


@pytest.fixture
def find_after(monkeypatch):
    """Give a function that lets the background find a choice after some calls, and tells how often it was asked."""

    def prepare(num_calls, choice, *, slow_down=0.0, tuning_report=None):
        asked = []

        def look(tuning, state, inputs):
            asked.append(len(inputs))
            tuning.is_over = len(asked) > num_calls
            if not tuning.is_over:
                return None
            step = running[0].device_executor.device_session.compiled
            request = replace(tuning._request, choice=choice)
            graph = lay_out(step.obtained.graph, choice)
            executable = load_engine(choice.engine)(graph, request)
            if slow_down:
                executable = SlowedDown(executable, slow_down)
            found = replace(step.obtained, executable=executable, graph=graph, choice=choice)
            return replace(found, tuning=tuning_report)

        monkeypatch.setattr(BackgroundTuning, "look", look)
        return asked

    monkeypatch.delenv("PORTING_ENGINE", raising=False)
    running = []
    prepare.running = running
    return prepare


class SlowedDown:
    """An executable that has become slow, as on a machine that others use."""

    name = "slow"

    def __init__(self, executable, seconds):
        self.executable, self.seconds = executable, seconds

    def run(self, *args, **kwargs):
        time.sleep(self.seconds)
        return self.executable.run(*args, **kwargs)


def train(find_after=None, *, num_calls=8, optimizer=torch.optim.Adam, accumulation=2, **settings):
    torch.manual_seed(0)
    model = Net()
    options = PortOptions(accumulation=accumulation, seed=7, **settings)
    made = optimizer(model.parameters(), lr=0.01)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=made, options=options, device="sim")
    if find_after is not None:
        find_after.running[:] = [ported]
    schedule = ported.scheduler(torch.optim.lr_scheduler.ExponentialLR(made, 0.9))
    generator = torch.Generator().manual_seed(1)
    rows = 4 * accumulation * settings.get("replicas", 1)
    losses = []
    for _ in range(num_calls):
        x = torch.randn(rows, 2, 6, 6, generator=generator)
        losses.append(ported(x, torch.arange(rows) % 3)[1].mean().item())
        schedule.step()
    return ported, losses


def assert_same(ported, losses, expected, expected_losses, **tolerance):
    torch.testing.assert_close(losses, expected_losses, **tolerance)
    torch.testing.assert_close(dict(ported.state_dict()), dict(expected.state_dict()), **tolerance)
    states = [port.optimizer_state_dict()["state"] for port in (ported, expected)]
    torch.testing.assert_close(*states, **tolerance)
    words = [port.device_executor.rng_state for port in (ported, expected)]
    assert words[0] == words[1]


SETTINGS = [{}, {"accumulation": 1, "replicas": 2, "broadcast_buffers": False}, {"optimizer": torch.optim.SGD}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_training_is_the_same_to_the_last_bit_where_the_engines_are(find_after, settings):
    find_after(3, Choice(num_threads=1))

    ported, losses = train(find_after, **settings)

    assert ported.report().executors[0].engine == "replay, 1 thread(s)"
    assert_same(ported, losses, *train(engine="ready", **settings), rtol=0.0, atol=0.0)


def test_weights_may_lie_in_another_order(find_after):
    find_after(3, Choice(channels_last=True))

    ported, losses = train(find_after)

    assert_same(ported, losses, *train(engine="ready"), rtol=1e-4, atol=1e-5)
    assert ported.report().executors[0].engine == "replay, channels-last"
    weight = ported.device_executor.device_session.compiled.state.parameters["conv.weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_what_lay_in_another_order_is_the_hosts_when_the_port_is_gone(find_after):
    found = []
    for prepare in (find_after, None):
        if prepare is not None:
            prepare(3, Choice(channels_last=True))
        ported, _losses = train(prepare, engine="auto" if prepare else "ready")
        device = ported.device_executor.device_session.compiled.state
        model = ported.port.model
        ported.destroy()
        found.append((dict(model.state_dict()), ported.optimizer_state_dict()["state"]))
        assert all(tensor.is_contiguous() for tensor in model.state_dict().values())
        if prepare is not None:
            # nothing was there twice
            storages = [device.parameters["conv.weight"], *device.slots["conv.weight"].values()]
            assert [tensor.untyped_storage().nbytes() for tensor in storages if tensor.dim() == 4][1:] == [0, 0]

    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, partial(torch.optim.SGD, momentum=0.9)], ids=["adam", "sgd"])
def test_a_program_whose_weights_lie_in_another_order_takes_the_optimizers_state_over(find_after, optimizer):
    find_after(3, Choice("aot", channels_last=True))

    ported, losses = train(find_after, optimizer=optimizer)

    assert_same(ported, losses, *train(engine="ready", optimizer=optimizer), rtol=1e-4, atol=1e-5)
    assert ported.report().executors[0].engine == "aot, channels-last"
    assert [finding.code for finding in ported.report().findings if finding.code.startswith("E")] == ["E011"]


def test_the_report_says_when_and_what_for(find_after):
    find_after(3, Choice(fused_update=True))

    ported, _losses = train(find_after)

    [finding] = [finding for finding in ported.report().findings if finding.code == "E011"]
    assert finding.message.startswith("from call 4 on the step runs as ")


def test_the_report_has_the_measurements_also_where_they_change_nothing(find_after):
    measured = TuningReport(Choice(), seconds=3.0)
    find_after(3, Choice(), tuning_report=measured)

    ported, losses = train(find_after)

    [finding] = [finding for finding in ported.report().findings if finding.code == "E011"]
    assert finding.message == "nothing was found that is faster than `replay`"
    assert ported.report().executors[0].tuning is measured
    assert_same(ported, losses, *train(engine="ready"), rtol=0.0, atol=0.0)


def test_nothing_is_asked_any_more_once_the_engine_has_proven_itself(find_after, monkeypatch):
    monkeypatch.setattr(engine_change, "_NUM_COMPARED", 3)
    monkeypatch.setattr(engine_change, "_NUM_WARM_UP", 1)
    monkeypatch.setattr(engine_change, "_LOSS", 1e9)  # a busy machine is no slow engine
    asked = find_after(2, Choice(fused_update=True))

    ported, _losses = train(find_after, num_calls=12)

    assert len(asked) == 3
    assert ported.device_executor.device_session._engine_change is None
    assert ported.report().executors[0].engine == "replay, fused update"


def test_an_engine_that_is_slower_here_goes_once(find_after, monkeypatch):
    monkeypatch.setattr(engine_change, "_NUM_COMPARED", 3)
    monkeypatch.setattr(engine_change, "_NUM_WARM_UP", 1)
    asked = find_after(3, Choice(fused_update=True), slow_down=0.05)

    ported, losses = train(find_after, num_calls=14)

    messages = [finding.message for finding in ported.report().findings if finding.code == "E011"]
    assert len(messages) == 2
    assert "as before: `replay, fused update` took" in messages[1]
    assert ported.report().executors[0].engine == "replay"
    assert len(asked) == 4
    assert_same(ported, losses, *train(engine="ready", num_calls=14), rtol=1e-4, atol=1e-5)


def test_an_engine_that_cannot_take_over_is_named(find_after, monkeypatch):
    find_after(3, Choice(channels_last=True))
    monkeypatch.setattr(
        "porting.engines.calls.device_state.DeviceState.copy_for", lambda *_args: (_ for _ in ()).throw(MemoryError())
    )

    ported, losses = train(find_after)

    assert_same(ported, losses, *train(engine="ready"), rtol=0.0, atol=0.0)
    assert any("cannot take over: MemoryError" in finding.message for finding in ported.report().findings)


def test_a_change_before_a_save_is_in_the_checkpoint(find_after, tmp_path):
    find_after(3, Choice(channels_last=True))
    ported, _losses = train(find_after)
    ported.save(tmp_path / "checkpoint")
    state = copy.deepcopy(ported.state_dict())

    other, _losses = train(engine="ready", num_calls=1)
    other.load(tmp_path / "checkpoint")

    torch.testing.assert_close(dict(other.state_dict()), dict(state), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("settings", [{"engine": "ready"}, {"engine": "replay"}])
def test_nothing_is_looked_for_unless_it_was_asked_for(find_after, settings):
    asked = find_after(0, Choice(fused_update=True))

    train(find_after, **settings)

    assert not asked
