"""LeNet-5 computes what its definition says, layer by layer: logits in training, probabilities in evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting import to_ipu
from porting.models.lenet5 import LeNet5Config, build, example_batch, loss


def halved(x: torch.Tensor) -> torch.Tensor:
    """Return the maxima of windows of 2 x 2."""
    num_images, channels, height, width = x.shape
    return x.view(num_images, channels, height // 2, 2, width // 2, 2).amax((3, 5))


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + (-x).exp())


def test_every_layer_computes_what_the_definition_says():
    model, outputs = build(), []
    for layer in (model.convolution_1, model.convolution_2, model.convolution_3, model.hidden):
        layer.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    images, _labels = example_batch(LeNet5Config(), batch_size=3)
    weights = iter(model.parameters())

    expected = [F.conv2d(images, next(weights), next(weights))]
    expected.append(F.conv2d(halved(sigmoid(expected[-1])), next(weights), next(weights)))
    expected.append(F.conv2d(halved(sigmoid(expected[-1])), next(weights), next(weights)))
    expected.append(F.linear(sigmoid(expected[-1]).flatten(1), next(weights), next(weights)))
    logits = F.linear(sigmoid(expected[-1]), next(weights), next(weights))

    torch.testing.assert_close(model(images), logits)
    assert [tuple(output.shape[1:]) for output in outputs] == [(6, 24, 24), (16, 8, 8), (120, 1, 1), (84,)]
    for ours, theirs in zip(outputs, expected):
        torch.testing.assert_close(ours, theirs)


def test_it_has_the_layers_of_its_definition():
    sizes = [tuple(parameter.shape) for parameter in build().parameters()]

    assert sizes[::2] == [(6, 1, 5, 5), (16, 6, 5, 5), (120, 16, 4, 4), (84, 120), (10, 84)]
    assert sum(parameter.numel() for parameter in build().parameters()) == 44_426


def test_evaluation_gives_the_softmax_of_the_logits():
    model = build()
    images, _labels = example_batch(LeNet5Config(), batch_size=3)

    logits, probabilities = model(images), model.eval()(images)

    torch.testing.assert_close(probabilities, logits.exp() / logits.exp().sum(1, keepdim=True))


def test_on_the_device_training_returns_logits_and_inference_probabilities():
    torch.manual_seed(0)
    model = build()
    images, labels = example_batch(LeNet5Config(), batch_size=3)
    expected = model(images).detach()
    ported = to_ipu(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))

    logits, _loss = ported(images, labels)
    probabilities = ported.inference()(images)

    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(probabilities, torch.softmax(expected, dim=1))


def test_larger_images_are_taken_and_smaller_ones_refused():
    assert build("padded")(torch.zeros(1, 1, 32, 32)).shape == (1, 10)
    with pytest.raises(ValueError, match="27 x 27 pixels are too small"):
        build(image_size=27)
