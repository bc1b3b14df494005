"""The network is the one of its definition, written a second time here as functions of the same weights."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import to_ipu
from porting.models.uresnet3d import UResNet3D, UResNet3DConfig, build, chunk_planes, example_batch, loss

SMALL = UResNet3DConfig(
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
    """The network in training mode, literally: three planes as the first spatial dimension of all tensors."""

    def __init__(self, config, model):
        self.config, self.found = config, {}
        self.tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def block(self, x, name, stride=1, plane_padding=0, activated=True):
        weight = self.tensors[f"{name}.convolution.weight"]
        padding = weight.shape[-1] // 2 if stride == 1 else 0
        x = F.conv3d(
            x,
            weight,
            self.tensors.get(f"{name}.convolution.bias"),
            stride=(1, stride, stride),
            padding=(plane_padding, padding, padding),
        )
        if self.config.batch_norm:
            mean, variance = x.mean((0, 2, 3, 4), keepdim=True), x.var((0, 2, 3, 4), unbiased=False, keepdim=True)
            scale, shift = self.tensors[f"{name}.norm.weight"], self.tensors[f"{name}.norm.bias"]
            x = (x - mean) / (variance + 1e-5).sqrt() * scale[:, None, None, None] + shift[:, None, None, None]
        if activated:
            x = torch.where(x > 0, x, 0.01 * x)
        self.found[name] = x
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

    def core(self, x, name, depth):
        if depth == 0:
            return self.deepest(x, name)
        x = self.blocks(x, f"{name}.down", self.config.blocks_per_level)
        residual = x
        x = self.downsample(x, f"{name}.shrink")
        x = self.core(x, f"{name}.below", depth - 1)
        x = self.upsample(x, f"{name}.grow")
        x = self.blocks(x, f"{name}.up", self.config.blocks_per_level)
        if self.config.connections == "concat":
            return self.block(torch.cat([x, residual], 1), f"{name}.join")
        return x + residual if self.config.connections == "sum" else x

    def downsample(self, x, name):
        if self.config.downsampling == "strided":
            return self.block(x, name, stride=2)
        return self.block(F.max_pool3d(x, (1, 2, 2)), f"{name}.1")

    def upsample(self, x, name):
        if self.config.upsampling == "transposed":
            weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
            return F.conv_transpose3d(x, weight, bias, stride=(1, 2, 2))
        x = F.interpolate(x, scale_factor=(1, 2, 2), mode="trilinear", align_corners=False)
        return self.block(x, f"{name}.1")

    def deepest(self, x, name):
        x = self.block(x, f"{name}.0")
        assert x.shape[2] == (3 if self.config.block_concat else 1)
        x = self.blocks(x, f"{name}.1", self.config.blocks_deepest)
        return self.block(x, f"{name}.2", plane_padding=0 if self.config.block_concat else 2)

    def __call__(self, images):
        x = self.block(images[:, None], "first")
        x = self.core(x, "core", self.config.depth)
        x = self.blocks(x, "final", self.config.blocks_final)
        return F.conv3d(x, self.tensors["scores.weight"], self.tensors["scores.bias"]).transpose(1, 2)


def made(config):
    """Make a model with biases and norms that are not what they start as."""
    model = UResNet3D(config).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize(("variant", "expected"), [("uresnet3d", 18_381_459), ("uresnet3d_deep", 19_366_755)])
def test_the_number_of_parameters_is_the_published_one(variant, expected):
    assert sum(parameter.numel() for parameter in build(variant).parameters()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("choices", COMBINATIONS, ids=lambda choices: "-".join(map(str, choices.values())))
def test_scores_and_gradients_are_those_of_the_definition(choices):
    config = dataclasses.replace(SMALL, **choices)
    model, images = made(config), torch.randn(2, 3, 8, 12, dtype=torch.float64)

    scores, expected = model(images), Definition(config, model)(images)

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
            module.register_forward_hook(lambda _module, _args, x, name=name: found.update({name: x}))

    definition(images)
    model(images)

    assert len(found) == 42
    torch.testing.assert_close(found, definition.found)


def test_kernels_see_one_plane_but_for_the_two_of_the_deepest_level():
    kernels = [module.kernel_size for module in build(depth=3).modules() if isinstance(module, nn.Conv3d)]

    assert [kernel for kernel in kernels if kernel[0] != 1] == [(3, 1, 1), (3, 1, 1)]


def test_planes_are_told_apart_at_the_deepest_level():
    model = UResNet3D(SMALL).eval()
    images, _labels = example_batch(SMALL, batch_size=1)

    assert not torch.allclose(model(images), model(images.flip(1)).flip(1))


def test_planes_never_meet_where_each_passes_the_bottleneck_by_itself():
    model = UResNet3D(dataclasses.replace(SMALL, block_concat=True)).eval()
    images, _labels = example_batch(SMALL, batch_size=1)

    torch.testing.assert_close(model(images), model(images.flip(1)).flip(1))


def test_a_downsampled_image_is_as_large_as_for_the_two_dimensional_network():
    assert UResNet3DConfig(depth=5).at_downsample(2).spatial_size == (320, 512)


@pytest.mark.parametrize("choices", [{}, {"downsampling": "strided", "upsampling": "transposed", "block_concat": True}])
def test_the_port_trains_as_the_network_does(choices):
    config = dataclasses.replace(SMALL, **choices)
    plain, model = UResNet3D(config), UResNet3D(config)
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
