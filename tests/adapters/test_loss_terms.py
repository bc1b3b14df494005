"""Several losses as terms; that a model is trained on their sum is in test_loss.py."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

import porting
from porting.adapters.loss_terms import LossTerm, PortableLosses, compute_terms, make_terms, name_function
from porting.diagnostics import OptionError, PortingError

OUTPUT = {"a": torch.ones(2), "b": torch.zeros(2)}
LABELS = {"a": torch.zeros(2), "b": torch.full((2,), 3.0)}


def values(terms, output=OUTPUT, labels=LABELS, *, label=-1, reduction=None):
    found = compute_terms(make_terms(terms), output, labels, label=label, reduction=reduction)
    return {name: value.item() for name, value in found.items()}


def test_one_loss_gets_everything():
    assert values(F.mse_loss, torch.ones(2), torch.zeros(2)) == {"loss": 1.0}


def test_losses_by_name_find_their_outputs_and_labels():
    assert values({"a": F.mse_loss, "b": F.l1_loss}) == {"a": 1.0, "b": 3.0}


def test_a_term_may_cross_names():
    assert values({"x": LossTerm(F.l1_loss, output="a", label="b", weight=10.0)}) == {"x": 20.0}


def test_a_term_without_keys_gets_everything():
    terms = {"both": LossTerm(lambda output, labels: output["a"].sum() + labels["b"].sum())}

    assert values(terms) == {"both": 8.0}


def test_positions_count_from_either_end():
    terms = {"first": LossTerm(F.l1_loss, output=0, label=-1)}

    assert values(terms, tuple(OUTPUT.values()), tuple(LABELS.values())) == {"first": 2.0}


def test_labels_of_a_call_are_known_by_the_names_they_were_passed_with():
    assert values({"a": F.l1_loss}, labels=tuple(LABELS.values()), label=("a", "b")) == {"a": 1.0}


def test_the_reduction_is_of_each_term():
    terms = {"a": nn.L1Loss(reduction="none"), "b": nn.L1Loss(reduction="none")}

    assert values(terms, reduction="sum") == {"a": 2.0, "b": 6.0}


def test_a_term_that_is_no_scalar_is_named():
    with pytest.raises(PortingError, match=r"the loss `L1Loss` gives a loss of shape \[2\]"):
        values({"a": nn.L1Loss(reduction="none")})


def test_a_name_that_the_model_does_not_return_is_told_with_those_it_does():
    with pytest.raises(PortingError) as caught:
        values({"c": F.mse_loss})

    assert caught.value.code == "L007"
    assert caught.value.finding.notes == ("the model returns a mapping with the keys 'a', 'b'",)


def test_a_label_that_the_call_does_not_have_is_told_with_those_it_has():
    with pytest.raises(PortingError) as caught:
        values({"a": F.mse_loss}, labels=(LABELS["a"],))

    assert caught.value.code == "L006"
    assert caught.value.finding.notes == ("the labels are 1 values",)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.MSELoss, "`loss` is the class MSELoss"),
        (3, "`loss` is 3"),
        ({}, "`loss` is an empty mapping"),
        ({"a": nn.MSELoss}, "`loss['a']` is the class MSELoss"),
        ({"a": LossTerm(None)}, "`loss['a']` is None"),
    ],
)
def test_what_cannot_be_called_is_refused(loss, message):
    with pytest.raises(OptionError) as caught:
        make_terms(loss)

    assert caught.value.finding.message == message


def test_functions_have_their_authors_names():
    assert name_function(nn.MSELoss()) == "`MSELoss`"
    assert name_function(F.mse_loss) == "`mse_loss`"
    assert name_function(functools.partial(F.mse_loss, reduction="sum")) == "`partial`"


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
