"""Half and single precision in one model: layers follow their activation, weights keep their own type."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

GENERATOR = torch.Generator().manual_seed(0)


def rows(*shape):
    return torch.randn(shape, generator=GENERATOR)


class First(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class Product(nn.Module):
    """A product with a parameter that is no layer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return x @ self.weight.t()


# A layer and the shape of its input.
LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 3, 2), (2, 4, 5)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 2), (2, 2, 5, 5)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 2), (2, 2, 5, 5)),
    "layer norm": (lambda: nn.LayerNorm(4), (5, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (5, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), (5, 4)),
    "batch norm": (lambda: nn.BatchNorm1d(4), (5, 4)),
    "batch norm in eval mode": (lambda: nn.BatchNorm2d(4).eval(), (5, 4, 2, 2)),
    "instance norm": (lambda: nn.InstanceNorm1d(4, affine=True), (2, 4, 5)),
    "prelu": (lambda: nn.PReLU(), (5, 4)),
    "lstm": (lambda: First(nn.LSTM(4, 3)), (5, 2, 4)),
    "gru": (lambda: First(nn.GRU(4, 3)), (5, 2, 4)),
    "product": (Product, (5, 4)),
}
each_layer = pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS.keys())


@each_layer
def test_a_half_input_gives_a_half_output(device, make, shape):
    model, x = make(), rows(*shape)
    expected = copy.deepcopy(model)(x)
    on_device = device(model, x.half(), mode="inference")

    (output,) = on_device.run(x.half())

    assert output.dtype == torch.float16
    torch.testing.assert_close(output.float(), expected.detach(), rtol=1e-2, atol=1e-2)


@each_layer
def test_a_single_input_gives_a_single_output_whatever_the_weights(device, make, shape):
    model, x = make().half(), rows(*shape)
    expected = copy.deepcopy(model).float()(x)
    on_device = device(model, x, mode="inference")

    (output,) = on_device.run(x)

    assert output.dtype == torch.float32
    torch.testing.assert_close(output, expected.detach(), rtol=1e-2, atol=1e-2)


@each_layer
def test_weights_of_single_precision_are_trained_on_half_activations(device, settings, make, shape):
    model, x = make(), rows(*shape)
    single = copy.deepcopy(model)
    with torch.no_grad():
        target = torch.zeros_like(single(x))
    halved = device(copy.deepcopy(model), x.half(), target.half(), loss=F.mse_loss)
    exact = device(single, x, target, loss=F.mse_loss)

    halved.run(x.half(), target.half(), settings=settings())
    exact.run(x, target, settings=settings())

    assert all(weight.dtype == torch.float32 for weight in halved.weights().values())
    torch.testing.assert_close(halved.weights(), exact.weights(), rtol=1e-2, atol=1e-2)


def test_statistics_of_single_precision_stay_so_under_a_half_model(device, settings):
    model, x = nn.BatchNorm1d(4).half(), rows(16, 4).half()
    model.running_mean, model.running_var = torch.zeros(4), torch.ones(4)
    on_device = device(model, x, torch.zeros_like(x), loss=F.mse_loss)

    for _ in range(50):
        output, _loss = on_device.run(x, torch.zeros_like(x), settings=settings(learning_rate=0.0))

    assert output.dtype == torch.float16
    torch.testing.assert_close(on_device.buffers()["running_mean"], x.float().mean(0), rtol=1e-2, atol=1e-3)


def test_half_statistics_are_written_back(device):
    model, x = nn.BatchNorm1d(4).half(), rows(16, 4)
    on_device = device(model, x, mode="inference")

    on_device.run(x)

    mean = on_device.buffers()["running_mean"]
    assert mean.dtype == torch.float16
    torch.testing.assert_close(mean.float(), 0.1 * x.mean(0), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_loss_has_the_type_of_the_outputs(device, dtype):
    model, x, y = nn.Linear(4, 3), rows(5, 4).to(dtype), torch.tensor([0, 1, 2, 0, 1])
    on_device = device(model, x, y, loss=F.cross_entropy)

    _output, loss = on_device.run(x, y)

    assert loss.dtype == dtype


def test_a_half_model_trains_in_half_precision(device, settings):
    model, x, y = nn.Linear(4, 3).half(), rows(5, 4).half(), torch.tensor([0, 1, 2, 0, 1])
    on_device = device(model, x, y, loss=F.cross_entropy)

    first = on_device.run(x, y, settings=settings())[1]
    for _ in range(20):
        _output, loss = on_device.run(x, y, settings=settings())

    assert loss < first
    assert on_device.weights()["weight"].dtype == torch.float16


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda half, single: half + single, torch.float32),
        (lambda half, single: half > single, torch.bool),
        (lambda half, single: torch.where(half > 0, half, single), torch.float32),
        (lambda half, single: torch.cat([half, single]), torch.float32),
        (lambda half, single: half @ single.t(), torch.float32),
        (lambda half, single: torch.linalg.cross(half[:, :3], single[:, :3]), torch.float32),
        (lambda half, single: F.binary_cross_entropy(half.sigmoid(), single.sigmoid()), torch.float32),
        (lambda half, single: half.index_add(0, torch.arange(5), single), torch.float16),
        (lambda half, single: half.clone().scatter_(1, (half > 0).long(), single), torch.float16),
        (lambda half, single: half.masked_scatter(half > 0, single), torch.float16),
        (lambda half, single: torch.cdist(half, half), torch.float16),
        (lambda half, single: half * 2.5, torch.float16),
        (lambda half, single: half.double(), torch.float32),
    ],
)
def test_operands_of_both_precisions_give_one(device, function, dtype):
    class Body(nn.Module):
        def forward(self, half, single):
            return function(half, single)

    half, single = rows(5, 4).half(), rows(5, 4)
    on_device = device(Body(), half, single, mode="inference")

    (result,) = on_device.run(half, single)

    assert result.dtype == dtype


def test_writing_single_values_into_half_memory_rounds_them(device):
    class Write(nn.Module):
        def forward(self, half, single):
            half[1:3] = single[1:3]
            half[torch.tensor([0])] = single[:1]
            return half * 1

    half, single = rows(5, 4).half(), rows(5, 4)
    on_device = device(Write(), half, single, mode="inference")

    result, _written = on_device.run(half, single)

    assert torch.equal(result, torch.cat([single[:3].half(), half[3:]]))


def test_bfloat16_is_computed_in_single_precision(device):
    x = rows(5, 4)
    on_device = device(nn.Linear(4, 3).bfloat16(), x.bfloat16(), mode="inference")

    (output,) = on_device.run(x.bfloat16())

    assert output.dtype == torch.float32
