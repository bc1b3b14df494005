"""`precision="bfloat16"`: products in bfloat16 and everything that lasts in float32, as eager autocast has it."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu

BF16 = torch.bfloat16


class Block(nn.Module):
    """A transformer's block on sequences of 8 vectors of 16 numbers, with a linear classifier behind."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        q, k, v = (t.reshape(-1, 8, 2, 8).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        x = x + self.narrow(F.gelu(self.wide(self.norms[1](x))))
        return self.head(x.mean(1))


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 3)
    )


MODELS = {"mlp": (mlp, (12, 16)), "cnn": (cnn, (12, 1, 8, 8)), "transformer": (Block, (12, 8, 16))}
each_model = pytest.mark.parametrize(("make", "shape"), MODELS.values(), ids=MODELS.keys())


def built(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


def batch(shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator), torch.randint(3, shape[:1], generator=generator)


def train_eagerly(model, x, y, *, autocast, steps=20):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=BF16, enabled=autocast):
            output = model(x)
        loss = F.cross_entropy(output.float(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ported(model, loss=F.cross_entropy, *, lr=0.02, momentum=0.9, precision="bfloat16", **options):
    return to_ipu(
        model,
        loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum),
        options=PortOptions(precision=precision, **options),
        device="sim",
    )


def train_ported(port, x, y, *, steps=20):
    return [port(x, y)[1].mean().item() for _ in range(steps)]


@pytest.mark.sampled(1)
@each_model
def test_losses_stay_close_to_those_of_float32(make, shape):
    x, y = batch(shape)
    expected = train_eagerly(built(make), x, y, autocast=False)

    torch.testing.assert_close(train_ported(ported(built(make)), x, y), expected, rtol=2e-2, atol=2e-3)


@pytest.mark.sampled(1)
@each_model
def test_losses_are_those_of_eager_autocast(make, shape):
    x, y = batch(shape)
    expected = train_eagerly(built(make), x, y, autocast=True)

    torch.testing.assert_close(train_ported(ported(built(make)), x, y), expected, rtol=2e-3, atol=1e-4)


def test_the_graph_computes_in_bfloat16():
    port = ported(mlp())
    port(*batch((12, 16)))

    graph = port.device_executor.device_session.require_compiled().graph
    assert [op.dtypes for op in graph.operators if "linear" in op.operator] == [(BF16,)] * 2


def test_everything_that_lasts_is_float32():
    model = cnn()
    port = ported(model)
    output, loss = port(*batch((12, 1, 8, 8)))

    assert {tensor.dtype for tensor in (output, loss)} == {torch.float32}
    assert {tensor.dtype for tensor in port.state_dict().values()} == {torch.float32, torch.int64}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_inference_is_in_bfloat16_too_and_hands_back_float32():
    model, (x, _) = built(mlp), batch((12, 16))
    port = ported(model)
    with torch.no_grad(), torch.autocast("cpu", dtype=BF16):
        expected = copy.deepcopy(model)(x)

    output = port.inference()(x)

    assert output.dtype == torch.float32
    torch.testing.assert_close(output, expected.float(), rtol=1e-2, atol=1e-3)
    assert torch.equal(output, output.bfloat16().float())


def test_evaluation_gives_output_and_loss_in_float32():
    port = ported(built(mlp)).eval()

    output, loss = port(*batch((12, 16)))

    assert (output.dtype, loss.dtype) == (torch.float32, torch.float32)


def test_the_loss_is_computed_outside_of_autocast():
    def similarity(output, label):
        return (output @ output.t()).mean()

    x, y = batch((12, 16))
    port = ported(built(mlp), similarity)

    output, loss = port(x, y)

    torch.testing.assert_close(loss, similarity(output, y), rtol=1e-6, atol=0)


def test_a_model_with_its_own_loss_is_ported():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 3)

        def forward(self, x, y):
            logits = self.layer(x)
            return {"logits": logits, "loss": F.cross_entropy(logits, y)}

    port = ported(WithLoss(), None)

    returned = port(*batch((12, 16)))

    assert {name: tensor.dtype for name, tensor in returned.items()} == dict.fromkeys(("logits", "loss"), torch.float32)


def test_metrics_get_float32():
    seen = []
    model = built(mlp)
    port = to_ipu(
        model,
        F.cross_entropy,
        options=PortOptions(precision="bfloat16"),
        metrics={"mean": lambda output, _label: seen.append(output.dtype) or output.mean()},
        device="sim",
    )

    port(*batch((12, 16)))

    assert set(seen) == {torch.float32}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "grouping", [{"accumulation": 3}, {"replicas": 3}, {"accumulation": 3, "replicas": 2}], ids=str
)
def test_accumulation_and_replicas_equal_one_large_batch(grouping):
    x, y = batch((12, 16))
    expected = train_ported(ported(built(mlp), micro_batch=12), x, y, steps=5)
    num_parts = PortOptions(**grouping).micro_batches_per_call

    port = ported(built(mlp), micro_batch=12 // num_parts, output_mode="all", **grouping)

    torch.testing.assert_close(train_ported(port, x, y, steps=5), expected, rtol=1e-2, atol=1e-3)


def test_device_iterations_are_steps():
    x, y = batch((12, 16))
    expected = train_ported(ported(built(mlp)), x, y, steps=4)

    port = ported(built(mlp), micro_batch=12, device_iterations=4, output_mode="all")
    _, losses = port(x.repeat(4, 1), y.repeat(4))

    torch.testing.assert_close(losses.tolist(), expected, rtol=1e-5, atol=1e-6)


def test_dropout_trains():
    port = ported(nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 3)), seed=1)

    assert all(loss == loss for loss in train_ported(port, *batch((12, 16)), steps=3))


def test_that_no_ipu_has_it_is_said_once_and_reported_always(caplog, monkeypatch):
    monkeypatch.setattr("porting.diagnostics.delivery._LOGGED", set())
    with caplog.at_level(logging.WARNING, logger="porting"):
        ports = [ported(mlp()), ported(mlp())]

    assert caplog.text.count("bfloat16-not-on-ipu") == 1
    assert [[finding.code for finding in port.report().findings] for port in ports] == [["P006"]] * 2
