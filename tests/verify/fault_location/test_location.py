"""Faults of one line, planted in ports, are found where they are, and their causes are named."""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.verify.certificate import Curves, Measured
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.location import locate_fault, say_checkpoint
from porting.verify.plain_training import PlainTraining
from tests.verify.fault_location.ports import (
    Around,
    Net,
    build_pair,
    change_attribute,
    exchange_module,
    make_batches,
    make_sgd,
)


class ShiftedNet(Net):
    def forward(self, x):
        h = self.drop(self.act(self.norm(self.first(x))))
        h = self.second(h) + 0.1
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return self.head(torch.tanh(h) * self.scale)


class CutNet(Net):
    def forward(self, x):
        h = self.drop(self.act(self.norm(self.first(x))))
        h = self.second(h.detach())
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return self.head(torch.tanh(h) * self.scale)


class StaleNet(Net):
    def forward(self, x):
        h = self.drop(self.act(self.norm(self.first(x))))
        h = self.second(h)
        return self.head(torch.tanh(h) * self.scale)


def exchange_class(kind):
    def change(model):
        model.__class__ = kind

    return change


def add_to_weight(model):
    with torch.no_grad():
        model.second.weight.add_(0.01)


def sgd(**settings):
    return lambda model: make_sgd(model.parameters(), **settings)


def adam(kind=torch.optim.Adam, **settings):
    return lambda model: kind(model.parameters(), **{"lr": 0.01, "weight_decay": 0.1, **settings})


def decay_biases(model):
    named = list(model.named_parameters())
    biases = [p for name, p in named if name.endswith("bias")]
    others = [p for name, p in named if not name.endswith("bias")]
    return torch.optim.SGD([{"params": others}, {"params": biases, "weight_decay": 0.1}], lr=0.1, momentum=0.9)


def split_groups(model):
    named = list(model.named_parameters())
    biases = [p for name, p in named if name.endswith("bias")]
    others = [p for name, p in named if not name.endswith("bias")]
    return torch.optim.SGD([{"params": others}, {"params": biases, "weight_decay": 0.0}], lr=0.1, momentum=0.9)


def leave_out_head(model):
    return make_sgd([p for name, p in model.named_parameters() if not name.startswith("head")])


class FlippedLabels(Around):
    def __call__(self, x, y):
        return self.inner(x, y.flip(0))


class DroppedTail(Around):
    def __init__(self, ported):
        super().__init__(ported)
        x, y = make_batches()[0]
        ported.compile(x[:-1], y[:-1])

    def __call__(self, x, y):
        return self.inner(x[:-1], y[:-1])


class LostReplica(Around):
    def gradients(self, iteration=-1):
        return {name: gradient * 0.5 for name, gradient in self.inner.gradients(iteration).items()}


def roll_labels(labels):
    return labels.roll(1, 0)


def plain_loss(output, labels):
    return nn.functional.cross_entropy(output, labels)


def halved_loss(output, labels):
    return nn.functional.cross_entropy(output, labels) * 0.5


@dataclass(frozen=True, eq=False)
class Plant:
    """A fault, what is said to differ first, and what has to be found."""

    name: str
    kind: str
    phase: str
    module: str
    words: Tuple[str, ...]
    change: Callable[[nn.Module], Any] = lambda model: None
    not_words: Tuple[str, ...] = ()
    plain_loss: Any = field(default_factory=nn.CrossEntropyLoss)
    ported_loss: Any = field(default_factory=nn.CrossEntropyLoss)
    optimizer: Callable[[nn.Module], Any] = sgd()
    ported_optimizer: Any = None
    settings: Dict[str, Any] = field(default_factory=dict)
    options: Dict[str, Any] = field(default_factory=dict)
    around: Any = None
    num_steps: int = 1
    reproduces: bool = False


PLANTS = [
    Plant(
        "batch norm's eps",
        "loss",
        "forward",
        "norm",
        ("BatchNorm1d", "`eps` is 1e-05", "0.01"),
        change_attribute("norm", "eps", 1e-2),
        not_words=("optimizer",),
        reproduces=True,
    ),
    Plant("eval mode", "output", "forward", "norm", ("eval mode",), lambda model: model.norm.eval(), reproduces=True),
    Plant(
        "dropout's p",
        "output",
        "forward",
        "drop",
        ("`p` is 0.2", "0.3"),
        change_attribute("drop", "p", 0.3),
        reproduces=True,
    ),
    Plant(
        "another activation",
        "loss",
        "forward",
        "act",
        ("ReLU", "GELU"),
        exchange_module("act", nn.GELU()),
        reproduces=True,
    ),
    Plant(
        "a number in forward",
        "loss",
        "forward",
        "Net",
        ("`scale` is 2 ", "2.1"),
        change_attribute("", "scale", 2.1),
        reproduces=True,
    ),
    Plant("a line in forward", "loss", "forward", "Net", ("+ 0.1",), exchange_class(ShiftedNet), reproduces=True),
    Plant(
        "another weight",
        "loss",
        "forward",
        "second",
        ("second.weight", "before the step"),
        add_to_weight,
    ),
    Plant(
        "reduction",
        "loss",
        "loss",
        "CrossEntropyLoss",
        ("`reduction` is mean", "sum", "8 times"),
        ported_loss=nn.CrossEntropyLoss(reduction="sum"),
        reproduces=True,
    ),
    Plant(
        "label smoothing",
        "loss",
        "loss",
        "CrossEntropyLoss",
        ("label_smoothing", "0.1"),
        ported_loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        reproduces=True,
    ),
    Plant(
        "ignored label",
        "loss",
        "loss",
        "CrossEntropyLoss",
        ("ignore_index",),
        ported_loss=nn.CrossEntropyLoss(ignore_index=0),
        reproduces=True,
    ),
    Plant(
        "class weights",
        "loss",
        "loss",
        "CrossEntropyLoss",
        ("`weight` is None", "[1.0, 2.0"),
        ported_loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 1.0, 1.0])),
        reproduces=True,
    ),
    Plant(
        "a factor in a function",
        "loss",
        "loss",
        "plain_loss",
        ("* 0.5", "0.5 times"),
        plain_loss=plain_loss,
        ported_loss=halved_loss,
        reproduces=True,
    ),
    Plant(
        "rolled labels",
        "loss",
        "loss",
        "CrossEntropyLoss",
        ("label_transform", "roll_labels"),
        settings={"label_transform": roll_labels},
    ),
    Plant(
        "flipped labels",
        "loss",
        "loss",
        "CrossEntropyLoss",
        ("reverse order", "what a call gets"),
        around=FlippedLabels,
    ),
    Plant(
        "dropped tail",
        "output",
        "data",
        "CrossEntropyLoss",
        ("last sample",),
        change_attribute("norm", "training", True),
        around=DroppedTail,
    ),
    Plant("cut graph", "gradient", "backward", "Net", ("detach", "no gradient"), exchange_class(CutNet)),
    Plant(
        "frozen bias",
        "gradient",
        "backward",
        "second",
        ("second.bias", "frozen"),
        lambda model: model.second.bias.requires_grad_(False),
    ),
    Plant(
        "sum of micro-batches",
        "gradient",
        "backward",
        "Net",
        ("4 times", "sum", "micro-batches"),
        options={"accumulation": 4, "reduction": "sum"},
    ),
    Plant(
        "sum of replicas",
        "gradient",
        "backward",
        "Net",
        ("2 times", "sum"),
        options={"replicas": 2, "broadcast_buffers": False, "reduction": "sum"},
    ),
    Plant(
        "half of the gradient",
        "gradient",
        "backward",
        "Net",
        ("0.5 times",),
        options={"replicas": 2, "broadcast_buffers": False},
        around=LostReplica,
    ),
    Plant(
        "batch norm's momentum",
        "buffer",
        "buffer",
        "norm",
        ("`momentum` is 0.1", "0.01"),
        change_attribute("norm", "momentum", 0.01),
        reproduces=True,
    ),
    Plant("a stale buffer", "buffer", "buffer", "Net", ("`mean` is stale",), exchange_class(StaleNet)),
    Plant(
        "momentum",
        "update",
        "update",
        "Net",
        ("momentum differs", "0.9", "0.8"),
        ported_optimizer=sgd(momentum=0.8),
        num_steps=2,
    ),
    Plant(
        "no momentum", "update", "update", "Net", ("momentum differs",), ported_optimizer=sgd(momentum=0.0), num_steps=2
    ),
    Plant("Nesterov", "update", "update", "Net", ("Nesterov",), ported_optimizer=sgd(nesterov=True)),
    Plant(
        "learning rate",
        "update",
        "update",
        "Net",
        ("learning rates differ", "0.1", "0.2"),
        ported_optimizer=sgd(lr=0.2),
    ),
    Plant(
        "decay of biases",
        "update",
        "update",
        "first",
        ("weight decay differs", "biases alone"),
        optimizer=split_groups,
        ported_optimizer=decay_biases,
    ),
    Plant(
        "a parameter left out",
        "update",
        "update",
        "head",
        ("not trained", "head.weight"),
        ported_optimizer=leave_out_head,
    ),
    Plant(
        "Adam's eps",
        "update",
        "update",
        "Net",
        ("optimizer's `eps`", "0.001"),
        optimizer=adam(),
        ported_optimizer=adam(eps=1e-3),
        not_words=("BatchNorm",),
    ),
    Plant(
        "Adam's betas",
        "optimizer state",
        "update",
        "Net",
        ("betas[1]", "0.99"),
        optimizer=adam(),
        ported_optimizer=adam(betas=(0.9, 0.99)),
    ),
    Plant(
        "decoupled decay",
        "update",
        "update",
        "Net",
        ("other kinds", "AdamW"),
        optimizer=adam(),
        ported_optimizer=adam(torch.optim.AdamW),
    ),
    Plant("clipping", "update", "update", "Net", ("clipped", "max_grad_norm"), settings={"max_grad_norm": 0.1}),
]


def build(plant):
    torch.manual_seed(0)
    model = Net()
    twin = copy.deepcopy(model)
    plain = PlainTraining(model, plant.plain_loss, plant.optimizer(model))
    plant.change(twin)
    options = PortOptions(keep_gradients=True, output_mode="all", **plant.options)
    optimizer = (plant.ported_optimizer or plant.optimizer)(twin)
    ported = to_ipu(twin, plant.ported_loss, optimizer=optimizer, options=options, device="sim", **plant.settings)
    return plain, ported if plant.around is None else plant.around(ported)


@functools.lru_cache(maxsize=None)
def locate(plant):
    plain, ported = build(plant)
    batches = make_batches()
    for number in range(plant.num_steps - 1):
        # one after the other, from the same weights: what differs later is a fault of the update alone
        x, y = batches[number]
        plain.optimizer.zero_grad()
        plain.loss(plain.model(x), y).backward()
        plain.optimizer.step()
        ported(x, y)
    if plant.num_steps > 1:
        ported.load_state_dict(plain.model.state_dict())
    first = Measured(plant.kind, "first.weight", plant.num_steps, 1.0, 1.0, 1e-6)
    return locate_fault(plain, ported, [(batch, {}) for batch in batches[plant.num_steps - 1 :]], first=first)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_fault_is_found_where_it_was_planted(plant):
    found = locate(plant)

    assert (found.phase, found.module) == (plant.phase, plant.module), found.cause
    assert all(word in found.cause for word in plant.words), found.cause
    assert not any(word in found.cause for word in plant.not_words), found.cause


REPRODUCED = [plant for plant in PLANTS if plant.reproduces]
# each script in a fork, so that none finds what another has done; torch alone is there, which takes longest to load,
# and what torch loads for the first optimizer
RUN_EACH = """
import os, runpy, sys
import torch

torch.optim.SGD([torch.ones(1)], lr=0.1)
for script in sys.argv[1:]:
    child = os.fork()
    if not child:
        os.dup2(os.open(f"{script}.txt", os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        runpy.run_path(script, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(script, flush=True)
"""


@pytest.fixture(scope="module")
def reproductions(tmp_path_factory):
    """Run the reproductions of all faults; give for each whether it failed, and what it printed."""
    folder = tmp_path_factory.mktemp("reproductions")
    scripts = {plant.name: folder / f"{number}.py" for number, plant in enumerate(REPRODUCED)}
    for plant in REPRODUCED:
        scripts[plant.name].write_text(locate(plant).reproduction)
    command = [sys.executable, "-c", RUN_EACH, *map(str, scripts.values())]
    failed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return {name: (str(script) in failed, Path(f"{script}.txt").read_text()) for name, script in scripts.items()}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="forks")
@pytest.mark.parametrize("plant", REPRODUCED, ids=lambda plant: plant.name)
def test_its_reproduction_runs_and_shows_it(plant, reproductions):
    has_failed, printed = reproductions[plant.name]

    assert not has_failed, printed
    assert float(printed.split()[-1]) > 1e-6


# -- what a single step does not show ----------------------------------------------------------------------------------


def step_lr(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ([0.1] * 6, "ignored"),
        ([0.1, 0.01, 0.01, 0.001, 0.001, 0.0001], "one step ahead"),
        ([0.1, 0.1, 0.1, 0.01, 0.01, 0.001], "one step behind"),
        ([0.1, 0.01, 0.001, 0.0001, 0.00001, 0.000001], "stepped 2 times"),
        ([0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01], "only once in 2 steps"),
        ([0.2, 0.2, 0.02, 0.02, 0.002, 0.002], "2 times"),
        ([0.1, 0.1, 0.05, 0.05, 0.025, 0.025], "multiplies it by 0.5"),
    ],
)
def test_a_wrong_schedule_is_told_from_the_rates(rates, words):
    plain, ported = build_pair(scheduler=step_lr)
    curves = Curves(plain_rates=(0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 1e-4, 1e-4), ported_rates=tuple(rates))

    found = locate_fault(plain, ported, [], first=Measured("learning rate", "group 0", 2, 1.0, 1.0, 0.0), curves=curves)

    assert (found.phase, found.operator) == ("schedule", "StepLR")
    assert words in found.cause


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("loop state", "first.weight", "`also` makes another state of the same weights"),
        ("update", "mean_weight", "no optimizer has `mean_weight`"),
    ],
)
def test_what_the_loop_does_beside_its_steps_is_told_as_such(kind, name, words):
    plain, ported = build_pair()
    for model in (plain.model, ported.model):
        model.register_parameter("mean_weight", nn.Parameter(torch.zeros(1), requires_grad=False))

    found = locate_fault(plain, ported, [(make_batches()[0], {})], first=Measured(kind, name, 1, 1.0, 1.0, 1e-6))

    assert found.phase == "update"
    assert words in found.cause


def test_samples_that_are_not_seen_are_a_fault_of_the_data():
    plain, ported = build_pair()

    found = locate_fault(plain, ported, [], first=Measured("samples", "dropped", 1, 4.0, 8.0, 0.0, "4 are dropped"))

    assert found.phase == "data"
    assert "4 are dropped" in found.cause


def test_a_port_that_starts_with_another_weight_is_found_before_any_step():
    plain, ported = build_pair(add_to_weight)

    found = locate_fault(plain, ported, [], first=Measured("parameter", "second.weight", 0, 1.0, 1.0, 0.0))

    assert (found.phase, found.module) == ("forward", "second")
    assert "before the first step" in found.cause


def test_what_is_not_finite_on_both_sides_is_no_difference():
    plain, ported = build_pair()
    x, y = make_batches()[0]
    x[0, 0] = float("inf")

    found = locate_fault(plain, ported, [((x, y), {})], first=Measured("loss", "loss", 1, 0.0, float("nan"), 0.0))

    assert "both not finite since step 1" in found.cause
    assert found.phase == "data"


def test_an_equal_pair_has_no_fault_to_name():
    plain, ported = build_pair()

    found = locate_fault(plain, ported, [(make_batches()[0], {})], first=Measured("loss", "loss", 1, 1.0, 1.0, 0.1))

    assert "shows no difference" in found.cause


# -- evaluation --------------------------------------------------------------------------------------------------------


class Counting(Net):
    """A network that counts its evaluations too."""

    def forward(self, x):
        self.mean.add_(1.0)
        return super().forward(x)


def evaluate(change=None, spoil=lambda ported: None, kind=Net, wrap=lambda ported: ported, **options):
    """Train one step, give both sides the same weights, and locate what their evaluation has otherwise."""
    plain, ported = build_pair(change, kind=kind, **options)
    spoil(ported)
    ported(*make_batches()[0])
    plain.model.load_state_dict(ported.state_dict())
    first = Measured("evaluation", "output 0", 1, 1.0, 1.0, 0.0)
    return locate_fault(plain, wrap(ported), [(make_batches()[0], {})], first=first)


class SavingOthers(Around):
    """A port whose checkpoints have running statistics of their own."""

    def save(self, path, **settings):
        mean = self.inner.model.norm.running_mean
        with torch.no_grad():
            mean.add_(1.0)
            self.inner.save(path, **settings)
            mean.sub_(1.0)


class Forgetting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1), persistent=False)


def test_an_evaluation_that_goes_on_training_is_found():
    found = evaluate(spoil=lambda ported: setattr(ported, "eval", lambda: ported))

    assert (found.phase, found.module) == ("evaluation", "norm")
    assert "writes `norm.running_mean`" in found.cause
    assert "stays in train mode" in found.cause


def test_an_evaluation_with_another_setting_is_found():
    found = evaluate(change_attribute("norm", "eps", 0.1))

    assert (found.phase, found.module) == ("evaluation", "norm")
    assert "`eps` is 1e-05" in found.cause


def test_what_forward_itself_writes_in_an_evaluation_is_no_fault():
    found = evaluate(kind=Counting)

    assert "writes" not in found.cause


def test_running_statistics_that_a_checkpoint_saves_wrongly_are_named():
    found = evaluate(wrap=SavingOthers)

    assert found.phase == "evaluation"
    assert found.cause == "running statistics are saved or loaded wrongly: `norm.running_mean`"


def test_an_evaluation_that_shows_nothing_is_told_by_what_differed():
    found = evaluate()

    assert found.cause == "the evaluation differs in output 0"


def test_buffers_that_no_checkpoint_has_are_named():
    found = evaluate(kind=Forgetting)

    assert found.cause == "no checkpoint has `center`: `register_buffer(..., persistent=False)`"


def test_an_evaluation_is_found_with_parts_that_are_accumulated_in_training():
    found = evaluate(change_attribute("norm", "eps", 0.1), accumulation=2)

    assert (found.phase, found.module) == ("evaluation", "norm")


def test_the_modes_are_as_before_afterwards():
    plain, ported = build_pair()
    ported(*make_batches()[0])
    modes = [module.training for model in (plain.model, ported.model) for module in model.modules()]
    before = [value.clone() for value in plain.model.state_dict().values()]

    locate_fault(plain, ported, [(make_batches()[0], {})], first=Measured("evaluation", "output 0", 1, 1.0, 1.0, 0.0))

    assert modes == [module.training for model in (plain.model, ported.model) for module in model.modules()]
    assert all(map(torch.equal, before, plain.model.state_dict().values()))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("norm.running_var", "running statistics are saved or loaded wrongly: `norm.running_var`"),
        ("second.weight", "`second.weight` is another after it was saved and loaded"),
    ],
)
def test_what_was_saved_otherwise_is_said(name, words):
    plain, ported = build_pair()
    evidence = Evidence(plain, ported, Measured("reloading", name, 1, 1.0, 1.0, 0.0))

    assert say_checkpoint(evidence, [name]) == words


@pytest.mark.parametrize("kind", ["reloading", "resuming"])
def test_the_kind_and_the_note_are_said_of_a_checkpoint(kind):
    plain, ported = build_pair()
    first = Measured(kind, "norm.running_mean", 3, 1.0, 1.0, 0.0, "it is not what the port had")

    found = locate_fault(plain, ported, [], first=first)

    assert (found.step, found.module, found.operator) == (3, "norm", "norm.running_mean")
    assert found.cause.endswith(f"`norm.running_mean` ({kind}): it is not what the port had")


def test_a_model_without_modules_is_named_by_its_class():
    plain, ported = build_pair(kind=lambda: nn.Sequential(nn.Linear(6, 4)))
    first = Measured("evaluation", "output 0", 1, 1.0, 1.0, 0.0)
    ported(*make_batches()[0])

    assert locate_fault(plain, ported, [(make_batches()[0], {})], first=first).phase == "evaluation"
