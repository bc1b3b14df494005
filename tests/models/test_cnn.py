"""The suite's convolutional network has the layers and the shapes that its name promises."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting.models import make_cnn
from porting.models.cnn import CNNConfig, build, example_batch


def kinds_of(model: nn.Module) -> list:
    return [type(layer).__name__ for layer in model]


@pytest.mark.parametrize("size", [4, 8, 28])
def test_it_takes_square_images(size):
    assert make_cnn(image_size=size, num_classes=7)(torch.zeros(2, 1, size, size)).shape == (2, 7)


def test_it_has_batchnorm_without_bias_before_it_and_dropout():
    model = make_cnn()

    assert {"BatchNorm2d", "Dropout"} <= set(kinds_of(model))
    assert [layer.bias for layer in model if isinstance(layer, nn.Conv2d)] == [None, None]


def test_it_computes_what_its_layers_say_one_after_the_other():
    model = build(image_size=8)
    model[11].p = 0.0
    images, _labels = example_batch(CNNConfig(image_size=8), batch_size=3)

    x = images
    for index in (0, 4):
        x = F.conv2d(x, model[index].weight, padding=1)
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
        x = (x - mean) / (variance + 1e-5).sqrt()
        x = F.max_pool2d(x.clamp(min=0), 2)
    x = F.linear(x.flatten(1), model[9].weight, model[9].bias).clamp(min=0)

    torch.testing.assert_close(model(images), F.linear(x, model[12].weight, model[12].bias))


@pytest.mark.parametrize("size", [2, 10])
def test_images_that_cannot_be_halved_twice_are_refused(size):
    with pytest.raises(ValueError, match="cannot be halved twice"):
        build(image_size=size)
