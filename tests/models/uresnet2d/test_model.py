"""The network is the one of its definition, written a second time here as functions of the same weights."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F

from porting import to_ipu
from porting.models.uresnet2d import UResNet2D, UResNet2DConfig, as_planes, build, chunk_planes, example_batch, loss

SMALL = UResNet2DConfig(
    filters=2, depth=2, blocks_deepest=1, blocks_final=1, bottleneck=4, deepest_kernel=3, spatial_size=(8, 12)
)
CHOICES = {
    "growth": ["additive", "multiplicative"],
    "downsampling": ["max_pooling", "strided"],
    "upsampling": ["interpolation", "transposed"],
    "connections": ["concat", "sum", "none"],
    "residual": [True, False],
    "batch_norm": [True, False],
    "block_concat": [True, False],
}
COMBINATIONS = [dict(zip(CHOICES, choice)) for choice in itertools.product(*CHOICES.values())]


class Definition:
    """The network in training mode, literally: tensors by the model's names, and what each named part gave."""

    def __init__(self, config, model):
        self.config, self.found = config, {}
        self.tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def block(self, x, name, stride=1, activated=True):
        weight = self.tensors[f"{name}.convolution.weight"]
        padding = weight.shape[-1] // 2 if stride == 1 else 0
        x = F.conv2d(x, weight, self.tensors.get(f"{name}.convolution.bias"), stride=stride, padding=padding)
        if self.config.batch_norm:
            mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
            scale, shift = self.tensors[f"{name}.norm.weight"], self.tensors[f"{name}.norm.bias"]
            x = (x - mean) / (variance + 1e-5).sqrt() * scale[:, None, None] + shift[:, None, None]
        if activated:
            x = torch.where(x > 0, x, 0.01 * x)
        self.found.setdefault(name, []).append(x)
        return x

    def blocks(self, x, name, count):
        for number in range(count):
            here = f"{name}.{number}"
            if self.config.residual:
                inner = self.block(self.block(x, f"{here}.body.0"), f"{here}.body.1", activated=False)
                x = F.leaky_relu(inner + x, 0.01)
            else:
                x = self.block(x, here)
        return x

    def core(self, planes, name, depth):
        if depth == 0:
            return self.deepest(planes, f"{name}.body")
        residuals = planes
        planes = [self.blocks(x, f"{name}.down", self.config.blocks_per_level) for x in planes]
        planes = [self.downsample(x, f"{name}.shrink") for x in planes]
        planes = self.core(planes, f"{name}.below", depth - 1)
        planes = [self.upsample(x, f"{name}.grow") for x in planes]
        planes = [self.connect(x, residual, f"{name}.join") for x, residual in zip(planes, residuals)]
        return [self.blocks(x, f"{name}.up", self.config.blocks_per_level) for x in planes]

    def downsample(self, x, name):
        if self.config.downsampling == "strided":
            return self.block(x, name, stride=2)
        return self.block(F.max_pool2d(x, 2), f"{name}.1")

    def upsample(self, x, name):
        if self.config.upsampling == "transposed":
            return F.conv_transpose2d(x, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"], stride=2)
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.block(x, f"{name}.1")

    def connect(self, x, residual, name):
        if self.config.connections == "concat":
            return self.block(torch.cat([x, residual], 1), name)
        return x + residual if self.config.connections == "sum" else x

    def deepest(self, planes, name):
        groups = planes if self.config.block_concat else [torch.cat(planes, 1)]
        groups = [self.block(x, f"{name}.0") for x in groups]
        groups = [self.blocks(x, f"{name}.1", self.config.blocks_deepest) for x in groups]
        groups = [self.block(x, f"{name}.2") for x in groups]
        return groups if self.config.block_concat else groups[0].chunk(3, 1)

    def __call__(self, images):
        planes = [self.block(plane, "first") for plane in images.chunk(3, 1)]
        planes = self.core(planes, "core", self.config.depth)
        planes = [self.blocks(x, "final", self.config.blocks_final) for x in planes]
        return [F.conv2d(x, self.tensors["scores.weight"], self.tensors["scores.bias"]) for x in planes]


def made(config):
    """Make a model with biases and norms that are not what they start as."""
    model = UResNet2D(config).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("choices", COMBINATIONS, ids=lambda choices: "-".join(map(str, choices.values())))
def test_scores_and_gradients_are_those_of_the_definition(choices):
    config = dataclasses.replace(SMALL, **choices)
    model, images = made(config), torch.randn(2, 3, 8, 12, dtype=torch.float64)

    scores, expected = model(images), torch.stack(Definition(config, model)(images), 1)

    torch.testing.assert_close(scores, expected)
    parameters, direction = list(model.parameters()), torch.randn_like(scores)
    found = torch.autograd.grad(scores, parameters, direction)
    torch.testing.assert_close(found, torch.autograd.grad(expected, parameters, direction), rtol=1e-6, atol=1e-7)


def test_every_block_gives_what_that_of_the_definition_gives():
    config = dataclasses.replace(SMALL, depth=3, blocks_deepest=2, spatial_size=(16, 24))
    model, images = made(config), torch.randn(2, 3, 16, 24, dtype=torch.float64)
    definition, found = Definition(config, model), {}
    for name, module in model.named_modules():
        if type(module).__name__ == "Block":
            module.register_forward_hook(lambda _module, _args, x, name=name: found.setdefault(name, []).append(x))

    definition(images)
    model(images)

    assert len(found) == 42
    torch.testing.assert_close(found, definition.found)


def test_planes_share_their_weights_and_meet_at_the_bottleneck_only():
    model = build("a21", filters=2, depth=2, bottleneck=4, spatial_size=(16, 24)).eval()
    images, _ = example_batch(dataclasses.replace(SMALL, spatial_size=(16, 24)), batch_size=1)

    scores, exchanged = model(images), model(images.flip(1))

    # the bottleneck tells the planes apart, and everything else is the same for all of them
    assert not torch.allclose(scores, exchanged.flip(1))
    assert len([name for name, _ in model.named_parameters() if name.startswith("first.")]) == 4


def test_planes_never_meet_where_each_passes_the_bottleneck_by_itself():
    model = UResNet2D(dataclasses.replace(SMALL, block_concat=True)).eval()
    images, _ = example_batch(SMALL, batch_size=1)

    torch.testing.assert_close(model(images), model(images.flip(1)).flip(1))


def test_convolutions_start_with_the_weights_of_xavier_and_no_bias():
    torch.manual_seed(0)
    model = build("a21", filters=16, depth=2, bottleneck=32)
    convolution = model.core.below.below.body[1][0].convolution

    bound = (6 / (32 * 25 + 32 * 25)) ** 0.5
    assert convolution.weight.abs().max().item() == pytest.approx(bound, rel=1e-2)
    assert not convolution.bias.any()


def test_scores_and_labels_come_apart_by_plane():
    model, (images, labels) = UResNet2D(SMALL), example_batch(SMALL, batch_size=2)
    scores = model(images)

    assert [plane.shape for plane in as_planes(scores)] == [(2, 3, 8, 12)] * 3
    assert [plane.shape for plane in chunk_planes(labels.int())] == [(2, 8, 12)] * 3
    assert {plane.dtype for plane in chunk_planes(labels.int())} == {torch.int64}
    torch.testing.assert_close(torch.stack(chunk_planes(labels), 1), labels)
    torch.testing.assert_close(loss(as_planes(scores), chunk_planes(labels)), loss(scores, labels))


@pytest.mark.parametrize("choices", [{}, {"downsampling": "strided", "upsampling": "transposed", "block_concat": True}])
def test_the_port_trains_as_the_network_does(choices):
    config = dataclasses.replace(SMALL, **choices)
    plain, model = UResNet2D(config), UResNet2D(config)
    model.load_state_dict(plain.state_dict())
    images, labels = example_batch(config, batch_size=2)
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2)
    ported = to_ipu(model, loss, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2), label_transform=chunk_planes)

    for _ in range(3):
        expected = loss(plain(images), labels)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()

        _scores, found = ported(images, labels)

        torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
    found, expected = model.state_dict(), plain.state_dict()
    torch.testing.assert_close(dict(found), dict(expected), rtol=1e-4, atol=1e-5)
