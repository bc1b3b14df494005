"""The network of PopTorch's Fashion-MNIST tutorial computes what its definition says, layer by layer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting.models.fashion_cnn import FashionCNNConfig, build, example_batch, loss


def normalised_in_groups(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Normalise three groups of four channels of each image, then scale and shift each channel."""
    groups = x.reshape(len(x), 3, -1)
    mean, variance = groups.mean(2, keepdim=True), groups.var(2, keepdim=True, unbiased=False)
    normal = ((groups - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)
    return normal * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def test_every_layer_computes_what_the_definition_says():
    model, outputs = build(), []
    for layer in (model.pool, model.norm, model.hidden, model.classifier):
        layer.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    images, _labels = example_batch(FashionCNNConfig(), batch_size=3)
    weights = iter(model.parameters())

    convolved = F.conv2d(images, next(weights), next(weights)).clamp(min=0)
    expected = [convolved.view(3, 5, 13, 2, 13, 2).amax((3, 5))]
    convolved = F.conv2d(expected[-1], next(weights), next(weights)).clamp(min=0)
    expected.append(normalised_in_groups(convolved, next(weights), next(weights)))
    expected.append(F.linear(expected[-1].flatten(1), next(weights), next(weights)))
    expected.append(F.linear(expected[-1].clamp(min=0), next(weights), next(weights)))
    log_probabilities = expected[-1] - expected[-1].exp().sum(1, keepdim=True).log()

    torch.testing.assert_close(model(images), log_probabilities, rtol=1e-4, atol=1e-4)
    assert [tuple(output.shape[1:]) for output in outputs] == [(5, 13, 13), (12, 9, 9), (100,), (10,)]
    for ours, theirs in zip(outputs, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_it_has_the_layers_of_its_definition():
    shapes = [tuple(parameter.shape) for parameter in build().parameters()]

    assert shapes[::2] == [(5, 1, 3, 3), (12, 5, 5, 5), (12,), (100, 972), (10, 100)]


def test_log_probabilities_of_all_classes_alike_lose_the_logarithm_of_their_number():
    assert loss(torch.full((4, 10), -math.log(10)), torch.arange(4)).item() == pytest.approx(math.log(10))


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="11 x 11 pixels are too small"):
        build(image_size=11)
