"""The state of an optimizer is the user's: whoever trains, a port, another or the plain loop, goes on from it."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting import PortOptions, to_ipu
from porting.diagnostics import UnsupportedOptimizerError

LOSS = nn.CrossEntropyLoss()
STEPS = 3


def make_groups(model):
    return [{"params": [*model[0].parameters()], "lr": 0.02}, {"params": [*model[2].parameters()]}]


OPTIMIZERS = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "SGD with momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    "SGD after Nesterov": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.005),
    "RMSprop, centered": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.005, momentum=0.5, centered=True),
    "Adam of two groups": lambda model: torch.optim.Adam(make_groups(model), lr=0.01),
}
every_optimizer = pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)


class Training:
    """One model and its optimizer, trained by whatever is asked for, batch after batch."""

    def __init__(self, make_optimizer=OPTIMIZERS["Adam"], *, frozen=False):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        self.model[0].requires_grad_(not frozen)
        self.optimizer = make_optimizer(self.model)
        self.ports = []
        self._generator = torch.Generator().manual_seed(1)

    def plain(self, steps=STEPS):
        for _ in range(steps):
            x, y = self._next_batch()
            self.optimizer.zero_grad()
            LOSS(self.model(x), y).backward()
            self.optimizer.step()

    def port(self, **options):
        options = PortOptions(engine="replay", **options)
        self.ports.append(to_ipu(self.model, LOSS, optimizer=self.optimizer, device="sim", options=options))

    def ported(self, number=-1, steps=STEPS):
        for _ in range(steps):
            self.ports[number](*self._next_batch())

    def _next_batch(self):
        x, y = torch.randn(8, 4, generator=self._generator), torch.randint(3, (8,), generator=self._generator)
        return x, y

    def destroy(self):
        self.ports[-1].destroy()

    def drop(self):
        self.ports.clear()
        gc.collect()


def train_plainly(make_optimizer, *, turns, frozen=False):
    training = Training(make_optimizer, frozen=frozen)
    training.plain(STEPS * turns)
    return training


def require_same(training, expected):
    """Demand equal weights, and an equal state of the optimizer, entry by entry."""
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(training.model.state_dict(), expected.model.state_dict(), **close)
    state, wanted = training.optimizer.state_dict()["state"], expected.optimizer.state_dict()["state"]
    # where torch writes that there is no momentum, a port has no entry
    wanted = {key: {name: each for name, each in own.items() if each is not None} for key, own in wanted.items()}
    torch.testing.assert_close(
        {k: own for k, own in state.items() if own}, {k: own for k, own in wanted.items() if own}, **close
    )


WAYS = {
    "port again": lambda training: training.port(),
    "destroy, port again": lambda training: (training.destroy(), training.port()),
    "drop, port again": lambda training: (training.drop(), training.port()),
    "destroy, the same port": lambda training: training.destroy(),
    "port with other options": lambda training: training.port(frozen="allow"),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("go_on", WAYS.values(), ids=WAYS)
@every_optimizer
def test_a_port_goes_on_from_the_state_of_the_port_before(make_optimizer, go_on):
    training = Training(make_optimizer)
    training.port()
    training.ported()

    go_on(training)
    training.ported()

    require_same(training, train_plainly(make_optimizer, turns=2))


@pytest.mark.parametrize("end", [Training.destroy, Training.drop], ids=["destroyed", "dropped"])
@every_optimizer
def test_the_plain_loop_goes_on_from_the_state_of_a_port(make_optimizer, end):
    training = Training(make_optimizer)
    training.port()
    training.ported()

    end(training)
    training.plain()

    require_same(training, train_plainly(make_optimizer, turns=2))


@every_optimizer
def test_a_port_and_the_plain_loop_take_turns(make_optimizer):
    training = Training(make_optimizer)

    training.plain()
    training.port()
    training.ported()
    training.destroy()
    training.plain()
    training.ported()
    training.destroy()
    training.plain()

    require_same(training, train_plainly(make_optimizer, turns=5))


@every_optimizer
def test_two_ports_of_one_optimizer_that_are_alive_take_turns(make_optimizer):
    training = Training(make_optimizer)

    for _ in range(2):
        training.port()
        training.ported()
    for number in (0, 0, 1, 0):
        training.ported(number)

    require_same(training, train_plainly(make_optimizer, turns=6))


@pytest.mark.parametrize("go_on", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_the_state_of_the_devices_own_optimizer_goes_from_port_to_port(kind, go_on):
    settings = {"lr": 0.01, **({"momentum": 0.9} if kind in ("SGD", "RMSprop") else {})}
    training = Training(lambda model: getattr(poptorch.optim, kind)(model.parameters(), **settings))
    training.port()
    training.ported()

    go_on(training)
    training.ported()

    expected = train_plainly(lambda model: getattr(torch.optim, kind)(model.parameters(), **settings), turns=2)
    torch.testing.assert_close(training.model.state_dict(), expected.model.state_dict(), rtol=1e-5, atol=1e-6)


def test_the_plain_loop_before_the_first_call_counts():
    training = Training()
    training.port()

    training.plain()
    training.ported()

    require_same(training, train_plainly(OPTIMIZERS["Adam"], turns=2))


def test_a_frozen_parameter_gets_no_state():
    training = Training(frozen=True)
    training.port()
    training.ported()

    training.destroy()
    training.plain()

    require_same(training, train_plainly(OPTIMIZERS["Adam"], turns=2, frozen=True))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("go_on", WAYS.values(), ids=WAYS)
@every_optimizer
def test_a_parameter_that_is_frozen_for_a_while_keeps_its_state(make_optimizer, go_on):
    training, expected = Training(make_optimizer), Training(make_optimizer)
    training.port()

    training.ported()
    for frozen in (True, False):
        training.model[0].requires_grad_(not frozen)
        go_on(training)
        training.ported()

    expected.plain()
    for frozen in (True, False):
        expected.model[0].requires_grad_(not frozen)
        expected.optimizer.zero_grad()
        expected.plain()
    require_same(training, expected)


def test_the_state_is_shown_while_the_device_trains():
    training = Training()
    training.port()
    seen = []

    for _ in range(2):
        training.ported(steps=1)
        seen.append(float(training.optimizer.state[training.model[0].weight]["step"]))

    assert seen == [1, 2]


def test_a_look_at_the_state_hands_nothing_to_the_device(monkeypatch):
    training = Training()
    training.port()
    training.ported()
    handed_over = []
    monkeypatch.setattr(training.ports[0].optimizer, "set_state_dict", handed_over.append)

    training.optimizer.state_dict()
    training.ported()

    assert handed_over == []


# -- what is changed on the host while the model is ported -------------------------------------------------------------


def zero_a_moment(training):
    training.optimizer.state[training.model[0].weight]["exp_avg"].zero_()


def zero_a_moment_behind_torchs_back(training):
    training.optimizer.state[training.model[0].weight]["exp_avg"].data.zero_()


def clear(training):
    training.optimizer.state.clear()


def forget_a_parameter(training):
    del training.optimizer.state[training.model[2].weight]


def double_the_moments(training):
    state = copy.deepcopy(training.optimizer.state_dict())
    for own in state["state"].values():
        own["exp_avg"] *= 2
    training.optimizer.load_state_dict(state)


CHANGES = (zero_a_moment, zero_a_moment_behind_torchs_back, clear, forget_a_parameter, double_the_moments)


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_in_the_state_reaches_the_device(change):
    training, expected = Training(), Training()
    training.port()
    for steps in (training.ported, expected.plain):
        steps()

    for each in (training, expected):
        change(each)
    training.ported()
    expected.plain()

    require_same(training, expected)


def remove_a_parameter(optimizer):
    # torch's `state_dict` wants no state of others than its parameters
    del optimizer.state[optimizer.param_groups[0]["params"].pop()]


def add_a_group(optimizer):
    optimizer.add_param_group({"params": [optimizer.param_groups[0]["params"].pop()], "lr": 0.1})


@pytest.mark.parametrize("change", [remove_a_parameter, add_a_group])
def test_other_parameters_are_refused_until_the_model_is_ported_again(change):
    training, expected = Training(), Training()
    training.port()
    training.ported()
    expected.plain()
    for each in (training, expected):
        change(each.optimizer)
    with pytest.raises(UnsupportedOptimizerError, match=r"(?s)O005.*port again"):
        training.ports[0](torch.zeros(8, 4), torch.zeros(8, dtype=torch.long))

    training.port()
    training.ported()
    expected.plain()

    require_same(training, expected)


# -- copies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state)), dict])
def test_a_copy_of_the_state_is_plain_and_up_to_date(make_copy):
    training = Training()
    training.port()
    training.ported()

    copied = make_copy(training.optimizer.state)

    assert type(copied).__module__ in ("builtins", "collections")
    assert [float(own["step"]) for own in copied.values()] == [STEPS] * 4


@pytest.mark.filterwarnings("ignore:note.P003")
def test_the_state_of_half_weights_goes_on_in_the_plain_loop():
    training = Training()
    training.port(precision="float16")
    training.ported()
    training.destroy()

    for parameter in training.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    training.optimizer.step()

    kinds = {own["exp_avg"].dtype for own in training.optimizer.state.values()}
    assert kinds == {torch.float16}
