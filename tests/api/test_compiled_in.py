"""What a step has read or assumed of the host changes later: the next steps are eager's, or the change is told."""

from __future__ import annotations

import argparse
import copy
import functools
import types
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, parametrize, prune, vector_to_parameters

from porting import PortOptions, to_ipu
from porting.diagnostics import PortingWarning
from porting.integrations.device_calls import DeviceCalls

TOLD = {"C020", "D005"}
SETTINGS = {"beta": 1.0, "epoch": 0}
BETA = 1.0


@dataclass
class Config:
    beta: float = 1.0
    epoch: int = 0


class Slotted:
    __slots__ = ("beta",)

    def __init__(self):
        self.beta = 1.0


class Net(nn.Module):
    """A model that scales its output by `read()`, which a test fills in."""

    gain = 1.0

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 3)
        self.drop = nn.Dropout(0.0)
        self.beta, self.args = 1.0, argparse.Namespace(beta=1.0, epoch=0)
        self.config, self.weights, self.table = Config(), [1.0, 2.0], {"beta": 1.0}
        self.pairs = types.SimpleNamespace(inner=Slotted())
        self.scale, self.rates = torch.tensor(1.0), np.ones(2)
        self.held, self.large = [torch.tensor(1.0)], torch.ones(100000)
        self.read = lambda: 1.0

    @property
    def rate(self):
        return self.args.beta / 2

    def read_gain(self):
        return 1.0

    def forward(self, x):
        hidden = self.drop(torch.tanh(self.norm(self.first(x))))
        return self.last(hidden) * self.read() * self.gain * self.scale


def change_global(_net):
    global BETA
    BETA = 3.0


def make_closure(net):
    beta = 1.0

    def change(_net):
        nonlocal beta
        beta = 3.0

    net.read = lambda: beta
    return change


def read_default(settings=SETTINGS):
    return settings["beta"]


def read_attribute():
    return read_attribute.beta


# how `forward` reads a value, and how a loop changes it
VALUES = {
    "attribute": (lambda net: lambda: net.beta, lambda net: setattr(net, "beta", 3.0)),
    "attribute of the class": (lambda net: lambda: 1.0, lambda net: setattr(Net, "gain", 3.0)),
    "namespace": (lambda net: lambda: net.args.beta, lambda net: setattr(net.args, "beta", 3.0)),
    "dataclass": (lambda net: lambda: net.config.beta, lambda net: setattr(net.config, "beta", 3.0)),
    "list": (lambda net: lambda: net.weights[0], lambda net: net.weights.__setitem__(0, 3.0)),
    "dictionary": (lambda net: lambda: net.table["beta"], lambda net: net.table.update(beta=3.0)),
    "slot in a namespace": (
        lambda net: lambda: net.pairs.inner.beta,
        lambda net: setattr(net.pairs.inner, "beta", 3.0),
    ),
    "property": (lambda net: lambda: net.rate, lambda net: setattr(net.args, "beta", 3.0)),
    "global dictionary": (lambda net: lambda: SETTINGS["beta"], lambda net: SETTINGS.update(beta=3.0)),
    "global": (lambda net: lambda: BETA, change_global),
    "default": (lambda net: read_default, lambda net: SETTINGS.update(beta=3.0)),
    "attribute of a function": (lambda net: read_attribute, lambda net: setattr(read_attribute, "beta", 3.0)),
    "partial": (
        lambda net: functools.partial(lambda pair: pair[0], net.weights),
        lambda net: net.weights.insert(0, 3.0),
    ),
    "exchanged object": (lambda net: lambda: net.config.beta, lambda net: setattr(net, "config", Config(3.0))),
    "tensor filled in place": (lambda net: lambda: 1.0, lambda net: net.scale.fill_(3.0)),
    "array": (lambda net: lambda: net.rates[0], lambda net: net.rates.__setitem__(0, 3.0)),
    "attribute that is missing": (
        lambda net: lambda: getattr(net, "late", 1.0),
        lambda net: setattr(net, "late", 3.0),
    ),
    "method": (lambda net: lambda: net.read_gain(), lambda net: setattr(net, "read_gain", lambda: 3.0)),
    "tensor of a list": (lambda net: lambda: net.held[0], lambda net: net.held[0].data.fill_(3.0)),
    "large tensor": (lambda net: lambda: net.large.mean(), lambda net: net.large.data.fill_(3.0)),
    "tensor exchanged": (lambda net: lambda: 1.0, lambda net: setattr(net, "scale", torch.tensor(3.0))),
}


class Twice(nn.Module):
    def forward(self, weight):
        return 2 * weight


def exchange_data(net):
    net.first.weight.data = torch.ones(6, 4) / 3


def write_array(net):
    net.first.weight.detach().numpy()[:] = 0.1


def prune_half(net):
    prune.l1_unstructured(net.first, "weight", 0.5)
    prune.remove(net.first, "weight")


def freeze(net):
    net.first.weight.requires_grad_(False)


STRUCTURE = {
    "new head": lambda net: setattr(net, "last", torch.manual_seed(9) and nn.Linear(6, 3)),
    "other activation": lambda net: setattr(net, "drop", nn.ReLU()),
    "no bias": lambda net: setattr(net.last, "bias", None),
    "new parameter": lambda net: setattr(net.last, "weight", nn.Parameter(torch.ones(3, 6))),
    "deleted module": lambda net: setattr(net, "drop", None) or setattr(net, "drop", nn.Identity()),
    "forward": lambda net: setattr(net.first, "forward", lambda x: 3 * nn.Linear.forward(net.first, x)),
    "inner mode": lambda net: net.norm.eval(),
    "forward hook": lambda net: net.norm.register_forward_hook(lambda _module, _args, result: result * 3) and None,
    "forward pre-hook": lambda net: net.norm.register_forward_pre_hook(lambda _module, args: (args[0] * 3,)) and None,
    "frozen": freeze,
}
WRITES = {
    "clamped data": lambda net: [weight.data.clamp_(-0.05, 0.05) for weight in net.parameters()] and None,
    "scaled data": lambda net: net.first.weight.data.mul_(2.0),
    "exchanged data": exchange_data,
    "in place": lambda net: nn.init.constant_(net.first.weight, 0.1),
    "from a vector": lambda net: vector_to_parameters(parameters_to_vector(net.parameters()) / 2, net.parameters()),
    "array": write_array,
    "to half and back": lambda net: net.half_precision(),
    "mask": lambda net: net.first.weight.data.mul_((torch.arange(24).view(6, 4) % 2).float()),
    "permuted": lambda net: net.first.weight.data.copy_(net.first.weight.data.flip(0)),
    "buffer": lambda net: net.norm.running_mean.data.fill_(0.5),
    "exchanged buffer": lambda net: setattr(net.norm, "running_mean", torch.ones(6)),
    "to double and back": lambda net: nn.Module.double(net).float() and None,
    "pruned": prune_half,
}
Net.half_precision = lambda self: nn.Module.half(self).float()
LOOPS = ("device", "host", "inference", "evaluation", "calls")
OPTIONS = PortOptions(engine="replay")


@pytest.fixture(autouse=True)
def _settings_of_before():
    reset()
    yield
    reset()


def reset():
    global BETA
    BETA, read_attribute.beta, Net.gain = 1.0, 1.0, 1.0
    SETTINGS.update(beta=1.0, epoch=0)


def make_batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 4, generator=generator), torch.randint(3, (8,), generator=generator)


def train_eagerly(net, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


class Training:
    """One of the loops with a port, and the same in plain PyTorch beside it."""

    def __init__(self, net: Net, loop: str) -> None:
        self.net, self.loop = net, loop
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.ported: Any = None
        if loop in ("device", "evaluation"):
            self.ported = to_ipu(net, F.cross_entropy, optimizer=self.optimizer, device="sim", options=OPTIONS)
        elif loop == "inference":
            self.ported = to_ipu(net, F.cross_entropy, device="sim", options=OPTIONS)
        elif loop == "host":
            self.ported = to_ipu(net, loop="host", device="sim", options=OPTIONS)
        elif loop == "calls":
            self.ported = DeviceCalls(net, device="sim", options=OPTIONS)
            self.ported.install()

    def step(self, number: int) -> torch.Tensor:
        x, y = make_batch(number)
        if self.loop == "device":
            return self.ported(x, y)[0]
        if self.loop == "evaluation":
            return self.ported.eval()(x, y)[0]
        if self.loop == "inference":
            return self.ported.inference()(x)
        train_eagerly(self.net if self.loop == "calls" else self.ported, self.optimizer, x, y)
        return torch.zeros(())

    def step_eagerly(self, number: int) -> torch.Tensor:
        x, y = make_batch(number)
        if self.loop in ("evaluation", "inference"):
            with torch.no_grad():
                return copy.deepcopy(self.net).eval()(x)
        output = self.net(x).detach() if self.loop == "device" else torch.zeros(())
        if self.loop == "device":
            # the call above has moved the statistics
            self.net.load_state_dict(self._before)
        train_eagerly(self.net, self.optimizer, x, y)
        return output

    def keep(self) -> None:
        self._before = copy.deepcopy(self.net.state_dict())


def run(change, loop, *, reads=None, is_eager=False, num_steps=5):
    """Return the outputs and the state of a training with a `change` in its middle, and what was told."""
    torch.manual_seed(3)
    net, outputs = Net(), []
    if change is make_closure:
        change = make_closure(net)
    elif reads is not None:
        net.read = reads(net)
    training = Training(net, "plain" if is_eager else loop)
    training.loop = loop
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(num_steps):
            if step == 2:
                change(net)
            if is_eager:
                training.keep()
            outputs.append(training.step_eagerly(step) if is_eager else training.step(step))
    told = {w.message.finding.code for w in caught if isinstance(w.message, PortingWarning)} & TOLD
    if loop == "calls" and not is_eager:
        training.ported.remove()
    return [output.detach().clone() for output in outputs], net.state_dict(), told


def is_eagers(one, other):
    outputs, state, _told = one
    plain_outputs, plain_state, _told = other
    return (
        all(torch.allclose(a, b, atol=1e-5) for a, b in zip(outputs, plain_outputs))
        and state.keys() == plain_state.keys()
        and all(torch.allclose(state[name].float(), plain_state[name].float(), atol=1e-5) for name in state)
    )


def check(change, loop, reads=None):
    ported = run(change, loop, reads=reads)
    reset()
    assert ported[2] or is_eagers(ported, run(change, loop, reads=reads, is_eager=True))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_forward_has_read_is_told(name, loop):
    reads, change = VALUES[name]

    check(change, loop, reads)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_variable_of_an_enclosing_function_is_told(loop):
    check(make_closure, loop)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", STRUCTURE)
def test_another_structure_is_told(name, loop):
    check(STRUCTURE[name], loop)


def add_parametrization(net):
    parametrize.register_parametrization(net.first, "weight", Twice())


@pytest.mark.parametrize("loop", ["host", "calls"])
def test_a_parametrization_is_followed_by_a_host_loop(loop):
    ported = run(add_parametrization, loop)

    assert is_eagers(ported, run(add_parametrization, loop, is_eager=True))


def test_a_parametrization_is_told_before_the_call_fails():
    net = Net()
    training = Training(net, "inference")
    training.step(0)
    add_parametrization(net)

    with pytest.warns(UserWarning, match="a (module|parameter) was "), pytest.raises(
        Exception, match="no longer has it"
    ):
        training.step(1)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", WRITES)
def test_weights_that_are_written_on_the_host_train_on(name, loop):
    ported = run(WRITES[name], loop)

    assert not ported[2]
    assert is_eagers(ported, run(WRITES[name], loop, is_eager=True))


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_is_told_where_nothing_changes(loop):
    ported = run(lambda net: None, loop, reads=lambda net: lambda: net.config.beta * SETTINGS["beta"] * BETA)

    assert not ported[2]
    assert is_eagers(ported, run(lambda net: None, loop, is_eager=True))


@pytest.mark.parametrize("loop", LOOPS)
def test_what_forward_does_not_read_may_change(loop):
    def change(net):
        net.config.epoch = net.args.epoch = SETTINGS["epoch"] = 7

    ported = run(change, loop, reads=lambda net: lambda: net.config.beta * net.args.beta * SETTINGS["beta"])

    assert not ported[2]


class Deep(nn.Module):
    """Many layers of torch's, and one number of the user's."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv1d(1, 1, 3, padding=1) for _ in range(40)))
        self.temperature = 1.0

    def forward(self, x):
        return self.layers(x[:, None]).flatten(1) / self.temperature


def test_in_a_large_model_the_next_call_tells_of_the_users_own_value():
    net = Deep()
    ported = to_ipu(net, F.cross_entropy, device="sim", options=OPTIONS)
    for number in range(4):
        ported(*make_batch(number))

    net.temperature = 0.5
    with pytest.warns(PortingWarning, match=r"C020.*`temperature` is 0.5 now"):
        ported(*make_batch(4))


@pytest.mark.parametrize(("reads_again", "is_told"), [(False, False), (True, True)])
def test_an_activation_that_works_in_place_now_is_told_where_that_changes_results(reads_again, is_told):
    class Activated(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.relu = nn.Linear(4, 3), nn.ReLU()

        def forward(self, x):
            h = self.linear(x)
            return self.relu(h) + h if reads_again else self.relu(h)

    net = Activated()
    ported = to_ipu(net, F.cross_entropy, device="sim", options=OPTIONS)
    ported(*make_batch(0))

    net.relu.inplace = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ported(*make_batch(1))

    assert any("`relu.inplace` is True now" in str(each.message) for each in caught) == is_told


class Scaled(nn.Linear):
    """Reads numbers where a step has no constants: of a tensor, and in a hook."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.scale, self.settings = torch.tensor(1.0), {"beta": 1.0}
        self.register_forward_hook(lambda module, args, output: output * self.settings["beta"])

    def forward(self, x):
        return super().forward(x) * float(self.scale)


@pytest.mark.parametrize(
    "change", [lambda net: net.scale.fill_(3.0), lambda net: net.settings.update(beta=3.0)], ids=["tensor", "hook"]
)
def test_a_number_that_a_tensor_or_a_hook_has_given_is_told(change):
    ported = to_ipu(Scaled(4, 3), F.cross_entropy, device="sim", options=OPTIONS)
    ported(*make_batch(0))
    change(ported.model)

    with pytest.warns(PortingWarning, match="C020"):
        ported(*make_batch(1))


class Counted(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Counted.calls += 1
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Counted.calls += 1
        return gradient


class Counting(nn.Linear):
    """Changes values of its own each time that it is captured."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.counts, self.settings = {}, types.SimpleNamespace()

    def forward(self, x):
        if "forward" not in self.counts:
            self.counts["forward"] = 0
        self.counts["forward"] += 1
        self.settings.calls = getattr(self.settings, "calls", 0) + 1
        return Counted.apply(super().forward(x))


class Scaling(torch.autograd.Function):
    scale = torch.tensor(1.0)

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Scaling.scale


class ScaledBackwards(nn.Linear):
    def forward(self, x):
        return Scaling.apply(super().forward(x))


def test_a_tensor_that_a_backward_alone_has_read_is_told_in_a_host_loop():
    ported = to_ipu(ScaledBackwards(4, 3), loop="host", device="sim", options=OPTIONS)
    x, y = make_batch(0)
    F.cross_entropy(ported(x), y).backward()
    Scaling.scale.fill_(3.0)

    with pytest.warns(PortingWarning, match="C020.*scale"):
        ported(x)


@pytest.mark.parametrize("loop", ["device", "host"])
def test_what_forward_itself_changes_is_not_told_when_it_is_captured_again(loop):
    net = Counting(4, 3)
    options = OPTIONS.replace(allow=["custom-autograd-function"])
    losses = {} if loop == "host" else {"loss": F.cross_entropy}
    ported = to_ipu(net, **losses, loop=loop, device="sim", options=options)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(3):
            x, y = make_batch(number)
            F.cross_entropy(ported(x), y).backward() if loop == "host" else ported(x, y)
            ported.eval()(x)
            ported.train()

    assert [str(w.message) for w in caught if "in the compiled step" in str(w.message)] == []
