"""A model that returns an object of a dataclass is ported as one that returns a named tuple with the same fields."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from porting import LossTerm, PlainTraining, PortOptions, compare_training, to_ipu


@dataclass
class Output:
    logits: torch.Tensor
    loss: Any = None
    note: str = "made by the model"


@dataclass(frozen=True)
class Frozen:
    logits: torch.Tensor
    loss: Any = None
    note: str = "made by the model"

    def __post_init__(self):
        # a copy made by the constructor would count twice
        object.__setattr__(self, "note", self.note + ", and looked at")


@dataclass
class Nested:
    inner: Output
    parts: Any
    loss: Any = None


class AsTuple(NamedTuple):
    logits: torch.Tensor
    loss: Any = None
    note: str = "made by the model"


class AsNestedTuple(NamedTuple):
    inner: AsTuple
    parts: Any
    loss: Any = None


class Net(nn.Linear):
    """A layer that returns what `make` makes of its output, with its own loss if it is called with labels."""

    def __init__(self, make):
        super().__init__(4, 3)
        self.make = make

    def forward(self, x, y=None):
        logits = super().forward(x)
        return self.make(logits, None if y is None else cross_entropy(logits, y))


def nest(outer, inner):
    return lambda logits, loss: outer(inner(logits), {"mean": logits.mean().detach(), "list": [logits]}, loss)


KINDS = {
    "plain": (Output, AsTuple),
    "frozen": (Frozen, AsTuple),
    "nested": (nest(Nested, Output), nest(AsNestedTuple, AsTuple)),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3


def port(make, loss=None, **keywords):
    torch.manual_seed(0)
    model = Net(make)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = PortOptions(micro_batch=4, accumulation=2, engine="replay", output_mode="all")
    return to_ipu(model, loss, optimizer=optimizer, options=options, device="sim", **keywords)


def logits_of(returned):
    return returned.inner.logits if hasattr(returned, "inner") else returned.logits


def read(ported, count=3):
    """Train and list the losses and the logits."""
    returned = [ported(X, Y) for _ in range(count)]
    return [(result.loss.tolist(), logits_of(result).tolist()) for result in returned]


@each_kind
@pytest.mark.parametrize("loss_output", [None, "loss"])
def test_a_loss_of_its_own_is_found_as_in_a_named_tuple(kind, loss_output):
    record, named_tuple = KINDS[kind]

    found = read(port(record, loss_output=loss_output))

    assert found == read(port(named_tuple, loss_output=loss_output))


@pytest.mark.parametrize("position", [1, -2])
def test_a_loss_is_found_by_its_position(position):
    assert read(port(Output, loss_output=position)) == read(port(AsTuple, loss_output=position))


@each_kind
def test_what_comes_back_is_of_the_same_class_with_all_else_as_it_was(kind):
    made, returned = KINDS[kind][0](torch.ones(1), torch.ones(1)), port(KINDS[kind][0])(X, Y)

    assert type(returned) is type(made)
    if kind == "nested":
        made, returned = made.inner, returned.inner
    assert returned.note == made.note


@each_kind
def test_a_loss_that_is_given_gets_the_object(kind):
    def loss(output, label):
        return cross_entropy(logits_of(output), label)

    found, expected = (port(make, loss)(X, Y) for make in KINDS[kind])

    assert type(found[0]) is type(KINDS[kind][0](torch.ones(1), None))
    assert torch.equal(found[1], expected[1])
    assert torch.equal(logits_of(found[0]), logits_of(expected[0]))


@pytest.mark.parametrize("output", ["logits", 0])
def test_a_loss_term_names_a_field(output):
    terms = {"fit": LossTerm(nn.CrossEntropyLoss(), output=output, label=0)}

    found, expected = (port(make, terms, label=("y",))(X, Y) for make in (Output, AsTuple))

    assert torch.equal(found[1], expected[1])


@each_kind
def test_inference_returns_the_object(kind):
    ported = port(KINDS[kind][0], lambda output, label: cross_entropy(logits_of(output), label))
    model = ported.model

    returned = ported.inference()(X)

    torch.testing.assert_close(logits_of(returned), logits_of(model(X)))


@each_kind
def test_a_host_loop_gets_the_object(kind):
    torch.manual_seed(0)
    model = Net(KINDS[kind][0])
    ported = to_ipu(model, loop="host", device="sim")

    cross_entropy(logits_of(ported(X)), Y).backward()

    gradient = model.weight.grad.clone()
    model.zero_grad()
    cross_entropy(logits_of(model.forward(X)), Y).backward()
    torch.testing.assert_close(gradient, model.weight.grad)


@each_kind
def test_the_fields_are_cast_in_half_precision(kind):
    ported = to_ipu(
        Net(KINDS[kind][0]),
        lambda output, label: cross_entropy(logits_of(output), label),
        device="sim",
        options=PortOptions(precision="mixed", engine="replay"),
    )

    assert logits_of(ported(X, Y)[0]).dtype == torch.float16


@each_kind
def test_the_training_is_the_plain_one(kind):
    torch.manual_seed(0)
    model = Net(KINDS[kind][0])

    def loss(output, label):
        return cross_entropy(logits_of(output), label)

    twin = copy.deepcopy(model)
    plain = PlainTraining(twin, loss, torch.optim.SGD(twin.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = PortOptions(engine="replay", keep_gradients=True, output_mode="all")
    ported = to_ipu(model, loss, optimizer=optimizer, device="sim", options=options)

    assert compare_training(plain, ported, [(X, Y)] * 2).holds
