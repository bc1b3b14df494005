"""VGG-16 has the published size and computes what its definition says, block by block."""

from __future__ import annotations

from typing import List

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting.models.vgg import VARIANTS, build, example_batch

NARROW = {"channels": (3, 4, 5, 6, 7), "hidden": 11, "num_classes": 9, "image_size": 64, "dropout": 0.0}


def outputs_of_parts(model: nn.Module, images: torch.Tensor) -> List[torch.Tensor]:
    """Run the model; return what each block and the classifier gave."""
    outputs: List[torch.Tensor] = []
    for part in [*model.blocks, model.classifier]:
        part.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    model(images)
    return outputs


def literal(parameters: List[torch.Tensor], images: torch.Tensor) -> List[torch.Tensor]:
    """Compute what each block and the classifier give, from weights and biases in order."""
    weights = iter(parameters)
    x, found = images, []
    for num_convolutions in (2, 2, 3, 3, 3):
        for _ in range(num_convolutions):
            x = F.conv2d(x, next(weights), next(weights), stride=1, padding=1).clamp(min=0)
        num_images, channels, height, width = x.shape
        x = x.view(num_images, channels, height // 2, 2, width // 2, 2).amax((3, 5))
        found.append(x)
    x = x.reshape(len(x), -1)
    for is_last in (False, False, True):
        weight, bias = next(weights), next(weights)
        x = x @ weight.t() + bias
        x = x if is_last else x.clamp(min=0)
    return [*found, x]


def test_the_number_of_parameters_is_the_published_one():
    with torch.device("meta"):
        model = build("vgg16")

    assert sum(parameter.numel() for parameter in model.parameters()) == 138_357_544


def test_every_part_computes_what_the_definition_says():
    model = build("vgg16", **NARROW)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    images = torch.randn(2, 3, 64, 64)

    expected = literal(list(model.parameters()), images)
    found = outputs_of_parts(model, images)

    assert len(found) == len(expected) == 6
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_an_image_of_224_pixels_has_the_published_shapes_after_each_block():
    with torch.device("meta"):
        found = outputs_of_parts(build("vgg16"), torch.zeros(1, 3, 224, 224))

    assert [tuple(output.shape[1:]) for output in found] == [
        (64, 112, 112),
        (128, 56, 56),
        (256, 28, 28),
        (512, 14, 14),
        (512, 7, 7),
        (1000,),
    ]


def test_dropout_acts_before_the_last_two_layers_and_in_training_only():
    model = build("vgg16_small")
    images, _labels = example_batch(VARIANTS["vgg16_small"], batch_size=2)

    kinds = [type(layer).__name__ for layer in model.classifier]

    assert kinds == ["Flatten", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear"]
    assert not torch.equal(model(images), model(images))
    assert torch.equal(model.eval()(images), model(images))


def test_an_untrained_network_keeps_the_size_of_its_signals():
    found = outputs_of_parts(build("vgg16", **{**NARROW, "channels": (16, 32, 64, 64, 64)}), torch.randn(4, 3, 64, 64))

    assert all(0.1 < output.square().mean().sqrt().item() < 10 for output in found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"image_size": 48}, "48 x 48 pixels cannot be halved 5 times"), ({"channels": (4, 4)}, "5 blocks have 2")],
)
def test_what_cannot_be_built_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)
