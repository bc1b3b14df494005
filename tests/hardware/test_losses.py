"""Losses of every kind on the hardware path: modules, functions, several at once, the model's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.hardware.side_by_side import (
    assert_trains_like_plain,
    batches,
    one_batch,
    port,
    sgd,
    small_net,
)

CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0])
CLASS_LOSSES = {
    "CrossEntropyLoss": nn.CrossEntropyLoss(),
    "F.cross_entropy": nn.functional.cross_entropy,
    "a function of one's own": lambda output, label: nn.functional.cross_entropy(output, label) * 2.0,
    "class weights": nn.CrossEntropyLoss(weight=CLASS_WEIGHTS),
    "label smoothing": nn.CrossEntropyLoss(label_smoothing=0.1),
    "class weights and label smoothing": nn.CrossEntropyLoss(weight=CLASS_WEIGHTS, label_smoothing=0.1),
    "ignore_index": nn.CrossEntropyLoss(ignore_index=0),
    "a sum": nn.CrossEntropyLoss(reduction="sum"),
    "NLLLoss with weights": nn.NLLLoss(weight=CLASS_WEIGHTS),
}
VALUE_LOSSES = {
    "MSELoss": nn.MSELoss(),
    "L1Loss": nn.L1Loss(),
    "HuberLoss": nn.HuberLoss(delta=0.5),
    "SmoothL1Loss": nn.SmoothL1Loss(),
    "BCEWithLogitsLoss with pos_weight": nn.BCEWithLogitsLoss(pos_weight=torch.full((3,), 2.0)),
    "KLDivLoss": nn.KLDivLoss(reduction="batchmean"),
}


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_a_loss_of_classes_trains_like_plain(name):
    assert_trains_like_plain(slow_sgd, loss=CLASS_LOSSES[name])


@pytest.mark.parametrize("name", VALUE_LOSSES)
def test_a_loss_of_values_trains_like_plain(name):
    data = [(x, torch.softmax(torch.randn(len(x), 3), dim=1)) for x, _y in batches(3)]

    assert_trains_like_plain(slow_sgd, loss=VALUE_LOSSES[name], data=data)


def slow_sgd(model):
    """Make an optimizer that a sum does not throw off."""
    return torch.optim.SGD(model.parameters(), lr=0.05)


# -- the model's own loss --------------------------------------------------------------------------------------------


class OwnLoss(nn.Module):
    """Returns its loss in one of the forms that models do."""

    def __init__(self, form):
        super().__init__()
        self.layer, self.form = nn.Linear(4, 3), form

    def forward(self, x, labels=None):
        logits = self.layer(x)
        if labels is None:
            return logits
        loss = nn.functional.cross_entropy(logits, labels)
        return {"tuple": (logits, loss), "dict": {"loss": loss, "logits": logits}, "bare": loss}[self.form]


@pytest.mark.parametrize("form", ["tuple", "dict", "bare"])
def test_a_models_own_loss_trains_infers_and_evaluates(form):
    model = OwnLoss(form)
    ported = port(model, optimizer=sgd(model))

    losses = [ported.loss_of(ported(*one_batch())).item() for _step in range(3)]

    assert losses[-1] < losses[0]
    assert ported.inference()(one_batch()[0]).shape == (8, 3)
    ported.eval()
    assert ported.loss_of(ported(*one_batch())) < losses[-1]


# -- several losses, metrics -----------------------------------------------------------------------------------------


class TwoHeads(nn.Module):
    """Tells a class and a size."""

    def __init__(self):
        super().__init__()
        self.of_kind, self.of_size = nn.Linear(4, 3), nn.Linear(4, 1)

    def forward(self, x):
        return {"kind": self.of_kind(x), "size": self.of_size(x)}


def test_losses_and_metrics_of_several_outputs():
    model, (x, y), size = TwoHeads(), one_batch(), torch.randn(8, 1)
    ported = port(
        model,
        {"kind": nn.CrossEntropyLoss(), "size": nn.MSELoss()},
        optimizer=sgd(model),
        label=("kind", "size"),
        metrics={
            "right": lambda output, label: (output["kind"].argmax(1) == label[0]).float().mean(),
            "distance": lambda output, label: nn.functional.mse_loss(output["size"], label[1]),
        },
    )

    output, loss, metrics = ported(x, kind=y, size=size)

    expected = nn.functional.cross_entropy(output["kind"], y) + nn.functional.mse_loss(output["size"], size)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["distance"].item() == pytest.approx(nn.functional.mse_loss(output["size"], size).item(), rel=1e-5)
    assert sorted(metrics) == ["distance", "right"]


def test_a_metric_is_no_second_loss_and_returns_gives_the_order():
    ported = port(
        small_net(),
        nn.CrossEntropyLoss(),
        metrics={"again": nn.functional.cross_entropy},
        returns=("loss", "metrics", "labels"),
    )

    loss, metrics, labels = ported(*one_batch())

    assert loss.item() == pytest.approx(metrics["again"].item(), rel=1e-5)
    assert torch.equal(labels, one_batch()[1])


class ScaledLoss(nn.Module):
    """Trains a weight of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, output, label):
        return nn.functional.cross_entropy(output * self.scale, label)


def test_the_parameters_of_a_loss_train_and_are_not_the_models():
    model, loss = small_net(), ScaledLoss()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    ported = port(model, loss, optimizer=optimizer)

    ported(*one_batch())

    assert loss.scale != 1.0
    assert list(ported.state_dict()) == list(small_net().state_dict())


# -- batches of other forms ------------------------------------------------------------------------------------------


class Masked(nn.Linear):
    def forward(self, x, mask=None):
        logits = super().forward(x)
        return logits if mask is None else logits * mask


class OfDictionary(nn.Linear):
    def forward(self, batch):
        return super().forward(batch["x"]) + batch["more"][0]


def test_a_dictionary_can_be_the_only_input():
    x, y = one_batch()
    ported = port(OfDictionary(4, 3), nn.CrossEntropyLoss())

    output, _loss = ported({"x": x, "more": (torch.ones(8, 1),)}, y)

    assert output.shape == (8, 3)


def test_labels_and_inputs_can_be_given_by_name_in_any_order():
    x, y = one_batch()
    model = Masked(4, 3)
    ported = port(model, nn.CrossEntropyLoss(), label="labels", optimizer=torch.optim.SGD(model.parameters(), lr=0.0))

    one, other = ported(x=x, labels=y), ported(labels=y, x=x)

    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


def test_an_input_by_name_reaches_forward():
    x, y = one_batch()

    output, _loss = port(Masked(4, 3), nn.CrossEntropyLoss())(x, mask=torch.zeros(8, 1), target=y)

    assert not output.any()
