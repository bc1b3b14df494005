"""Residual networks have the published sizes, and compute what their two definitions say, stage by stage."""

from __future__ import annotations

import math
from typing import Iterator, List

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting import to_ipu
from porting.models.resnet import VARIANTS, ResNet, ResNetConfig, build, example_batch, loss

PUBLISHED = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet50_chainer": 25_557_032,
    "resnet101_chainer": 44_549_160,
    "resnet152_chainer": 60_192_808,
}
# what tells the definitions apart: pooling windows, strides of a block's three convolutions, BatchNorm's epsilon
TORCHVISION = {"overlaps": True, "strides": (1, 2, 1), "epsilon": 1e-5}
CHAINER = {"overlaps": False, "strides": (2, 1, 1), "epsilon": 2e-5}


class Literal:
    """The network written out from its definition; it takes the weights in the order in which they are used."""

    def __init__(self, weights: Iterator[torch.Tensor], *, overlaps: bool, strides: tuple, epsilon: float) -> None:
        self.weights, self.overlaps, self.strides, self.epsilon = weights, overlaps, strides, epsilon

    def convolution_and_norm(self, x: torch.Tensor, *, stride: int, padding: int) -> torch.Tensor:
        kernel, scale, shift = next(self.weights), next(self.weights), next(self.weights)
        x = F.conv2d(x, kernel, stride=stride, padding=padding)
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
        normal = (x - mean) / (variance + self.epsilon).sqrt()
        return normal * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)

    def stem(self, images: torch.Tensor) -> torch.Tensor:
        x = self.convolution_and_norm(images, stride=2, padding=3).clamp(min=0)
        if self.overlaps:
            return F.max_pool2d(x, 3, 2, 1)
        # a last window that is not complete counts, too
        odd_columns, odd_rows = x.shape[3] % 2, x.shape[2] % 2
        return F.max_pool2d(F.pad(x, (0, odd_columns, 0, odd_rows), value=-math.inf), 2, 2)

    def basic_block(self, x: torch.Tensor, *, halves: bool, projects: bool) -> torch.Tensor:
        stride = 2 if halves else 1
        y = self.convolution_and_norm(x, stride=stride, padding=1).clamp(min=0)
        y = self.convolution_and_norm(y, stride=1, padding=1)
        return self.joined(y, x, stride=stride, projects=projects and halves)

    def bottleneck(self, x: torch.Tensor, *, halves: bool, projects: bool) -> torch.Tensor:
        strides = self.strides if halves else (1, 1, 1)
        y = self.convolution_and_norm(x, stride=strides[0], padding=0).clamp(min=0)
        y = self.convolution_and_norm(y, stride=strides[1], padding=1).clamp(min=0)
        y = self.convolution_and_norm(y, stride=strides[2], padding=0)
        return self.joined(y, x, stride=2 if halves else 1, projects=projects)

    def joined(self, y: torch.Tensor, x: torch.Tensor, *, stride: int, projects: bool) -> torch.Tensor:
        return (y + (self.convolution_and_norm(x, stride=stride, padding=0) if projects else x)).clamp(min=0)

    def run(self, images: torch.Tensor, *, blocks: tuple, bottleneck: bool) -> List[torch.Tensor]:
        """Return what the stem, each stage, the mean over the pixels and the classifier give."""
        block = self.bottleneck if bottleneck else self.basic_block
        found = [self.stem(images)]
        for stage, num_blocks in enumerate(blocks):
            x = found[-1]
            for index in range(num_blocks):
                x = block(x, halves=stage > 0 and index == 0, projects=index == 0)
            found.append(x)
        found.append(found[-1].mean((2, 3)))
        weight, bias = next(self.weights), next(self.weights)
        return [*found, found[-1] @ weight.t() + bias]


def outputs_of_parts(model: ResNet, images: torch.Tensor) -> List[torch.Tensor]:
    """Run the model; return what the stem, each stage, the pooling and the classifier gave."""
    outputs: List[torch.Tensor] = []
    for part in [model.stem, *model.stages, model.pool, model.classifier]:
        part.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    model(images)
    return outputs


def shaken(model: nn.Module) -> nn.Module:
    """Give BatchNorm weights and biases that are not 1 and 0, so that one in the wrong place shows."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return model


def strides_of(block: nn.Module) -> List[int]:
    return [layer.stride[0] for layer in block.body if isinstance(layer, nn.Conv2d)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("variant", "expected"), PUBLISHED.items())
def test_the_number_of_parameters_is_the_published_one(variant, expected):
    with torch.device("meta"):
        model = build(variant)

    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("variant", "definition"),
    [
        ("resnet18", TORCHVISION),
        ("resnet50", TORCHVISION),
        ("resnet50_chainer", CHAINER),
        ("resnet101", TORCHVISION),
        ("resnet152_chainer", CHAINER),
    ],
)
@pytest.mark.parametrize("image_size", [64, 50])
def test_every_part_computes_what_the_definition_says(variant, definition, image_size):
    # in float64, because BatchNorm blows rounding up from layer to layer
    model = shaken(build(variant, width=2, num_classes=7)).double()
    config = VARIANTS[variant]
    images = torch.randn(4, 3, image_size, image_size, dtype=torch.float64)

    literal = Literal(iter(model.parameters()), **definition).run(
        images, blocks=config.blocks, bottleneck=config.bottleneck
    )
    found = outputs_of_parts(model, images)

    assert len(found) == len(literal) == 7
    for ours, theirs in zip(found, literal):
        torch.testing.assert_close(ours.flatten(1), theirs.flatten(1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("variant", "widening"), [("resnet18", 1), ("resnet50", 4), ("resnet50_chainer", 4)])
def test_an_image_of_224_pixels_has_the_published_shapes_at_each_stage(variant, widening):
    with torch.device("meta"):
        found = outputs_of_parts(build(variant), torch.zeros(1, 3, 224, 224))

    shapes = [tuple(output.shape[1:]) for output in found]
    assert shapes[0] == (64, 56, 56)
    assert shapes[1:5] == [(64 * 2**stage * widening,) + (56 // 2**stage,) * 2 for stage in range(4)]
    assert shapes[5:] == [(512 * widening, 1, 1), (1000,)]


@pytest.mark.parametrize(("variant", "expected"), [("resnet50", [1, 2, 1]), ("resnet50_chainer", [2, 1, 1])])
def test_the_definitions_halve_an_image_in_another_convolution(variant, expected):
    with torch.device("meta"):
        model = build(variant)

    assert strides_of(model.stages[1][0]) == expected
    assert strides_of(model.stages[0][0]) == strides_of(model.stages[1][1]) == [1, 1, 1]


def test_only_the_first_block_of_a_stage_projects_its_shortcut():
    with torch.device("meta"):
        model = build("resnet50")

    assert [[isinstance(block.shortcut, nn.Sequential) for block in stage] for stage in model.stages] == [
        [index == 0 for index in range(num_blocks)] for num_blocks in (3, 4, 6, 3)
    ]


def test_with_zero_init_last_every_block_begins_as_its_shortcut():
    model = build("resnet50", width=2, zero_init_last=True)
    x = torch.randn(3, 8, 5, 5).clamp(min=0)

    block = model.stages[0][1]

    assert torch.equal(block(x), x)


def test_zero_init_last_leaves_the_first_norms_of_a_block_and_the_shortcut_alone():
    block = build("resnet50", width=2, zero_init_last=True).stages[0][0]

    norms = [(name, module) for name, module in block.named_modules() if isinstance(module, nn.BatchNorm2d)]
    weights = {name: module.weight.mean().item() for name, module in norms}

    assert weights == {"body.1": 1.0, "body.4": 1.0, "body.7": 0.0, "shortcut.1": 1.0}


def test_statistics_are_used_in_evaluation():
    model = build(width=4, num_classes=7)
    images, _labels = example_batch(ResNetConfig(image_size=32), batch_size=2)

    together = model.eval()(images)

    torch.testing.assert_close(together[:1], model(images[:1]))


@pytest.mark.parametrize("stem_pool", [2, 3])
def test_images_of_any_size_become_logits(stem_pool):
    model = ResNet(ResNetConfig(width=4, num_classes=7, stem_pool=stem_pool))

    assert model(torch.zeros(2, 3, 37, 55)).shape == (2, 7)


def test_a_bottleneck_whose_pooling_has_an_incomplete_window_trains_on_the_device():
    config = ResNetConfig(
        blocks=(1, 1, 1, 1), width=2, num_classes=7, image_size=42, bottleneck=True, stem_pool=2, stride_in_1x1=True
    )
    batch = example_batch(config, batch_size=3)
    model = ResNet(config)
    expected = loss(model(batch[0]), batch[1]).item()

    ported = to_ipu(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    assert float(ported(*batch)[1]) == pytest.approx(expected, rel=1e-5)


def test_another_pooling_is_refused():
    with pytest.raises(ValueError, match="`stem_pool` is 4; it can be 3"):
        build(stem_pool=4)


def test_label_smoothing_spreads_certainty_over_all_classes():
    logits, labels = torch.randn(3, 5), torch.tensor([0, 4, 2])
    targets = 0.9 * F.one_hot(labels, 5) + 0.1 / 5

    smooth = loss(logits, labels, label_smoothing=0.1)

    torch.testing.assert_close(smooth, -(targets * logits.log_softmax(1)).sum(1).mean())
    assert loss(logits, labels) == F.cross_entropy(logits, labels)
