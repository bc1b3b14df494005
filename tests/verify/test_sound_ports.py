"""Ports that are right pass, whatever their model, optimizer, schedule, grouping and precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting import PortOptions
from porting.verify import Verdict


class Cnn(nn.Module):
    """Convolutions with BatchNorm and pooling, in place where that is possible."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(8 * 4, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x)), inplace=True), 2)
        return self.last(F.gelu(F.pad(self.second(x), (0, 1, 0, 1))).flatten(1))


class Transformer(nn.Module):
    """One layer of attention over words, with tied weights."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words):
        return self.head(self.layer(self.embedding(words))).mean(1)


class ByName(nn.Module):
    """A model that returns a dictionary, with a frozen, an unused and a shared layer, and a counter."""

    def __init__(self):
        super().__init__()
        self.frozen, self.shared, self.unused, self.head = (nn.Linear(5, 5) for _ in range(4))
        self.frozen.requires_grad_(False)
        self.register_buffer("order", torch.tensor([4, 3, 2, 1, 0]))
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        x = self.frozen(x[:, self.order] - self.mean).tanh()
        x = self.shared(self.shared(x).tanh())
        return {"logits": self.head(x), "features": x}


def loss_by_name(outputs, labels):
    return F.cross_entropy(outputs["logits"], labels) + 0.1 * outputs["features"].square().mean()


class OwnLoss(nn.Module):
    """A model that returns its loss."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x, labels):
        logits = self.layer(x)
        return F.cross_entropy(logits, labels), logits


class Recurrent(nn.Module):
    """An LSTM, or another recurrent layer."""

    def __init__(self, cell=nn.LSTM):
        super().__init__()
        self.cell, self.head = cell(5, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.cell(x.unsqueeze(1).expand(-1, 4, -1))[0][:, -1])


class Words(nn.Module):
    """The mean of words."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 16), nn.Linear(16, 11)

    def forward(self, words):
        return self.head(self.embedding(words).mean(1).tanh())


def grouped():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))


def mlp(*more):
    return nn.Sequential(nn.Linear(5, 16), *more, nn.ReLU(), nn.Linear(16, 3))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def rows(count=24):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 5, generator=generator), torch.randint(3, (count,), generator=generator)


def images():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(24, 1, 6, 6, generator=generator), torch.randint(3, (24,), generator=generator)


def words():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(11, (24, 7), generator=generator), torch.randint(11, (24,), generator=generator)


@dataclass(frozen=True)
class Port:
    """What is ported rightly; `options` are those of the port."""

    model: Callable[[], nn.Module] = mlp
    batch: Callable[[], Any] = rows
    optimizer: Callable[[nn.Module], Any] = sgd
    loss: Any = F.cross_entropy
    options: Dict[str, Any] = field(default_factory=dict)
    more: Dict[str, Any] = field(default_factory=dict)
    compared: str = "the same batch a step"
    steps: int = 8


ACCUMULATED = {"micro_batch": 6, "accumulation": 4}
REPLICATED = {"micro_batch": 6, "accumulation": 2, "replicas": 2, "broadcast_buffers": False}
LARGE = "one large batch a step"
SMALL = "4 micro-batches a step"

TWO = {"micro_batch": 12, "accumulation": 2}


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=3e-3)


def plain_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


IN_HALF = [
    (mlp, rows, plain_sgd, "bfloat16", {}),
    (mlp, rows, adam, "float16", ACCUMULATED),
    (mlp, rows, sgd, "bfloat16", ACCUMULATED),
    (lambda: mlp(nn.LayerNorm(16)), rows, sgd, "mixed", {}),
    (lambda: mlp(nn.LayerNorm(16)), rows, adam, "bfloat16", TWO),
    (lambda: mlp(nn.BatchNorm1d(16)), rows, adamw, "bfloat16", ACCUMULATED),
    (lambda: mlp(nn.BatchNorm1d(16)), rows, sgd, "mixed", TWO),
    (Cnn, images, plain_sgd, "bfloat16", ACCUMULATED),
    (Cnn, images, adam, "float16", {}),
    (Cnn, images, sgd, "mixed", TWO),
    (grouped, images, sgd, "mixed", ACCUMULATED),
    (grouped, images, adamw, "bfloat16", {}),
    (grouped, images, adam, "float16", TWO),
    (Recurrent, rows, sgd, "mixed", {}),
    (Recurrent, rows, adam, "float16", TWO),
    (lambda: Recurrent(nn.GRU), rows, adamw, "mixed", {}),
    (lambda: Recurrent(nn.GRU), rows, sgd, "bfloat16", TWO),
    (Words, words, sgd, "float16", {}),
    (Words, words, adamw, "mixed", ACCUMULATED),
    (Transformer, words, sgd, "mixed", {}),
    (Transformer, words, adam, "mixed", ACCUMULATED),
    (Transformer, words, plain_sgd, "bfloat16", TWO),
]

PORTS = {
    **{
        f"half {number}, {precision}": Port(model, batch, optimizer, options={"precision": precision, **more})
        for number, (model, batch, optimizer, precision, more) in enumerate(IN_HALF, 1)
    },
    "mlp": Port(),
    "mlp, Adam": Port(optimizer=adamw),
    "mlp, RMSprop": Port(optimizer=lambda model: torch.optim.RMSprop(model.parameters(), lr=1e-3)),
    "mlp, default optimizer": Port(optimizer=None),
    "mlp, accumulation": Port(options=ACCUMULATED, compared=LARGE),
    "mlp, a sum accumulated": Port(
        loss=nn.CrossEntropyLoss(reduction="sum"),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=1e-3),
        options={**ACCUMULATED, "reduction": "sum"},
        compared=LARGE,
    ),
    "mlp, replicas": Port(options=REPLICATED, compared=LARGE),
    "mlp, device iterations": Port(options={"micro_batch": 8, "device_iterations": 3}),
    "mlp, clipped": Port(more={"max_grad_norm": 0.1}),
    "mlp, step by step schedule": Port(more={"scheduler": lambda optimizer: lr_scheduler.StepLR(optimizer, 3)}),
    "mlp, one cycle": Port(more={"scheduler": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 20)}),
    "mlp, plateau": Port(more={"scheduler": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, threshold=0.5)}),
    "mlp, no learning": Port(optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.0)),
    "BatchNorm": Port(lambda: mlp(nn.BatchNorm1d(16))),
    "BatchNorm, accumulation": Port(lambda: mlp(nn.BatchNorm1d(16)), options=ACCUMULATED, compared=SMALL),
    "BatchNorm, replicas": Port(lambda: mlp(nn.BatchNorm1d(16)), optimizer=adamw, options=REPLICATED, compared=SMALL),
    "Dropout": Port(lambda: mlp(nn.Dropout(0.3))),
    "Dropout, accumulation": Port(lambda: mlp(nn.Dropout(0.3)), options=ACCUMULATED, compared=SMALL),
    "Dropout, replicas": Port(lambda: mlp(nn.Dropout(0.3)), options=REPLICATED, compared=SMALL),
    "Dropout, a seed": Port(lambda: mlp(nn.Dropout(0.3)), options={"seed": 3}),
    "cnn": Port(Cnn, images, adamw),
    "cnn, accumulation": Port(Cnn, images, options=ACCUMULATED, compared=SMALL),
    "transformer": Port(Transformer, words, adamw),
    "transformer, accumulation": Port(Transformer, words, adamw, options=ACCUMULATED, compared=LARGE),
    "transformer, Dropout": Port(lambda: Transformer(0.2), words, adamw),
    "recurrent": Port(Recurrent, optimizer=adamw),
    "by name": Port(ByName, loss=loss_by_name),
    "own loss": Port(OwnLoss, loss=None, more={"loss_output": 0}),
    "mlp, float16": Port(options={"precision": "float16"}),
    "mlp, mixed": Port(options={"precision": "mixed"}, optimizer=adamw),
    "mlp, bfloat16": Port(options={"precision": "bfloat16"}, optimizer=adamw),
    "BatchNorm, float16": Port(lambda: mlp(nn.BatchNorm1d(16)), options={"precision": "float16"}),
    "cnn, mixed": Port(Cnn, images, adamw, options={"precision": "mixed"}),
    "transformer, float16": Port(Transformer, words, adamw, options={"precision": "float16"}, steps=4),
    "transformer, bfloat16": Port(Transformer, words, adamw, options={"precision": "bfloat16"}, steps=4),
    "mlp, mixed, accumulation": Port(options={"precision": "mixed", **ACCUMULATED}, compared=SMALL),
    "Dropout, mixed": Port(lambda: mlp(nn.Dropout(0.3)), options={"precision": "mixed"}),
    "loader": Port(
        batch=lambda: DataLoader(TensorDataset(*rows(48)), batch_size=8, shuffle=True),
        options={"accumulation": 2},
        compared=LARGE,
    ),
}


def prove(port):
    torch.manual_seed(5)
    model = port.model()
    return porting.verify(
        model,
        port.loss,
        port.batch(),
        optimizer=None if port.optimizer is None else port.optimizer(model),
        options=PortOptions(**port.options),
        steps=port.steps,
        device="sim",
        **port.more,
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PORTS)
def test_a_sound_port_passes(name):
    port = PORTS[name]

    certificate = prove(port)

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert port.compared.startswith("the same") or certificate.comparison.startswith(port.compared)
    compared = {kind.kind: kind.num_compared for kind in certificate.kinds}
    assert compared["gradient"]
    assert compared["update"]
    assert compared["resuming"]


@pytest.mark.parametrize("is_plain_parted", [True, False])
def test_the_same_settings_in_other_groups_pass(is_plain_parted):
    def make_parted(model):
        return torch.optim.AdamW([{"params": [parameter]} for parameter in model.parameters()], lr=1e-3)

    def make_whole(model):
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    plain, ported = (make_parted, make_whole) if is_plain_parted else (make_whole, make_parted)

    def make_port(model):
        options = PortOptions(keep_gradients=True, output_mode="all")
        return porting.to_ipu(model, nn.MSELoss(), optimizer=ported(model), options=options, device="sim")

    batch = torch.randn(8, 4), torch.randn(8, 2)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))

    certificate = porting.verify(model, nn.MSELoss(), batch, optimizer=plain, ported=make_port, steps=5)

    assert certificate.verdict is Verdict.PASS, str(certificate)


@pytest.mark.slow
@pytest.mark.usefixtures("programs_have_compiler")
def test_a_compiled_port_passes_with_its_own_rounding():
    def make_port(model):
        options = PortOptions(engine="aot", output_mode="all")
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        return porting.to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 5))
    batch = torch.randn(32, 64), torch.randint(5, (32,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    certificate = porting.verify(model, nn.CrossEntropyLoss(), batch, optimizer=optimizer, ported=make_port, steps=10)

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert certificate.surroundings["device"]["engine"] == "aot"
    verdicts = {kind.kind: kind.verdict for kind in certificate.kinds}
    assert verdicts["gradient"] is Verdict.NOT_COMPARED
