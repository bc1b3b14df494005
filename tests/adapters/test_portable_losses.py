"""Losses written with other operators have the value and the gradient of the originals."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import porting
from porting.adapters.portable_losses import PortableLosses

GENERATOR = torch.Generator().manual_seed(3)
WEIGHTS = torch.tensor([0.2, 1.5, 0.7, 1.0])
ROWS = torch.randn(5, 4, generator=GENERATOR)
CLASSES = torch.tensor([0, 3, 1, 1, 2])
IMAGES = torch.randn(2, 4, 3, 3, generator=GENERATOR)
PIXELS = torch.randint(4, (2, 3, 3), generator=GENERATOR)

REWRITTEN = {
    "class weights": (nn.CrossEntropyLoss(weight=WEIGHTS), ROWS, CLASSES),
    "label smoothing": (nn.CrossEntropyLoss(label_smoothing=0.1), ROWS, CLASSES),
    "both": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3), ROWS, CLASSES),
    "both of images": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3), IMAGES, PIXELS),
    "both, without an ignored class": (
        nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3, ignore_index=1),
        ROWS,
        CLASSES,
    ),
    "smoothing without padding": (nn.CrossEntropyLoss(label_smoothing=0.3), ROWS, torch.tensor([0, -100, 1, -100, 2])),
    "the sum": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3, reduction="sum"), ROWS, CLASSES),
    "each row": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3, reduction="none"), ROWS, CLASSES),
    "one sample": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3), ROWS[0], CLASSES[0]),
    "probabilities": (nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.3), ROWS, ROWS.flip(0).softmax(1)),
    "probabilities of pixels": (nn.CrossEntropyLoss(weight=WEIGHTS), IMAGES, IMAGES.flip(0).softmax(1)),
    "likelihood": (nn.NLLLoss(weight=WEIGHTS, ignore_index=3), ROWS, CLASSES),
    "sum of likelihoods": (nn.NLLLoss(weight=WEIGHTS, reduction="sum"), IMAGES, PIXELS),
    "huber": (nn.HuberLoss(delta=0.4), ROWS, ROWS.flip(0)),
    "sum of huber": (nn.HuberLoss(delta=2.0, reduction="sum"), ROWS, ROWS.flip(0)),
}

KEPT = [
    nn.CrossEntropyLoss(),
    nn.NLLLoss(),
    nn.MSELoss(),
    nn.functional.cross_entropy,
    nn.CrossEntropyLoss(ignore_index=2),
]


def make_portable(loss):
    """Return `loss` as the device computes it."""

    def compute(output, label):
        with PortableLosses():
            return loss(output, label)

    return compute


class CallsOfTorch(TorchFunctionMode):
    """Sees which functions of torch are called."""

    def __init__(self):
        super().__init__()
        self.called = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.called.append(func)
        return func(*args, **(kwargs or {}))


def value_and_gradient(loss, output, label):
    output = output.clone().requires_grad_()
    value = loss(output, label)
    value.sum().backward()
    return value.detach(), output.grad


@pytest.mark.parametrize("name", REWRITTEN)
def test_value_and_gradient_are_those_of_the_loss(name):
    loss, output, label = REWRITTEN[name]

    for actual, expected in zip(
        value_and_gradient(make_portable(loss), output, label), value_and_gradient(loss, output, label)
    ):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", REWRITTEN)
def test_the_device_takes_it(name, poptorch):
    loss, output, label = REWRITTEN[name]

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = loss

        def forward(self, output, label):
            return make_portable(self.loss)(output, label)

    value = poptorch.inferenceModel(Loss())(output, label)

    torch.testing.assert_close(value, loss(output, label))


@pytest.mark.parametrize("name", REWRITTEN)
def test_functions_that_the_device_lacks_are_not_called(name):
    loss, output, label = REWRITTEN[name]

    with CallsOfTorch() as calls:
        make_portable(loss)(output, label)

    assert not {F.cross_entropy, F.nll_loss, F.huber_loss} & set(calls.called)


@pytest.mark.parametrize("loss", KEPT)
def test_losses_that_the_device_has_are_kept(loss):
    with CallsOfTorch() as calls:
        make_portable(loss)(ROWS, ROWS if isinstance(loss, nn.MSELoss) else CLASSES)

    assert {F.cross_entropy, F.nll_loss, F.mse_loss} & set(calls.called)


def test_derived_losses_are_computed_so_too():
    class Mine(nn.HuberLoss):
        def forward(self, output, label):
            return super().forward(output, label) + 1

    assert_close = torch.testing.assert_close
    assert_close(make_portable(Mine())(ROWS, ROWS.flip(0)), Mine()(ROWS, ROWS.flip(0)))


CALLED = {
    "by the names of arguments": lambda output, label: F.cross_entropy(input=output, target=label, label_smoothing=0.2),
    "class weights": lambda output, label: F.cross_entropy(output, label, WEIGHTS.to(output.device)),
    "label smoothing": lambda output, label: F.cross_entropy(output, label, label_smoothing=0.2, reduction="sum"),
    "both, without an ignored class": lambda output, label: F.cross_entropy(
        output, label, weight=WEIGHTS.to(output.device), ignore_index=1, label_smoothing=0.3
    ),
    "huber": lambda output, label: F.huber_loss(output, output.detach().flip(0), delta=0.4),
    "likelihood": lambda output, label: F.nll_loss(output, label, WEIGHTS.to(output.device), ignore_index=3),
    "plain": F.cross_entropy,
}


@pytest.mark.parametrize("name", CALLED)
def test_functions_are_computed_so_wherever_they_are_called(name):
    expected = value_and_gradient(CALLED[name], ROWS, CLASSES)

    with PortableLosses():
        found = value_and_gradient(CALLED[name], ROWS, CLASSES)

    torch.testing.assert_close(found, expected)


def test_a_call_that_torch_refuses_is_refused_by_torch():
    with PortableLosses(), pytest.raises(RuntimeError, match="label_smoothing must be between"):
        F.cross_entropy(ROWS, CLASSES, label_smoothing=1.5)


@pytest.mark.parametrize("name", CALLED)
def test_a_loss_of_ones_own_that_calls_them_trains_as_eager_does(name):
    model = nn.Linear(4, 4)
    expected = CALLED[name](model(ROWS), CLASSES)

    _output, loss = porting.to_ipu(model, CALLED[name])(ROWS, CLASSES)

    torch.testing.assert_close(loss, expected.detach())
