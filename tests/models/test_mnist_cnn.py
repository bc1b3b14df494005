"""The network of PopTorch's MNIST tutorial computes what its definition says, its second softmax included."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting.models.mnist_cnn import MNISTCNNConfig, build, example_batch, loss


def halved(x: torch.Tensor) -> torch.Tensor:
    """Return the maxima of windows of 2 x 2; a last odd row or column is left out."""
    height, width = x.shape[2] // 2, x.shape[3] // 2
    return x[:, :, : 2 * height, : 2 * width].reshape(len(x), x.shape[1], height, 2, width, 2).amax((3, 5))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.exp() / x.exp().sum(1, keepdim=True)


def test_every_layer_computes_what_the_definition_says():
    model, outputs = build(dropout=0.0), []
    for layer in (model.block_1, model.block_2, model.hidden, model.classifier):
        layer.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    images, _labels = example_batch(MNISTCNNConfig(), batch_size=3)
    weights = iter(model.parameters())

    expected = [halved(F.conv2d(images, next(weights), next(weights))).clamp(min=0)]
    expected.append(halved(F.conv2d(expected[-1], next(weights), next(weights))).clamp(min=0))
    expected.append(F.linear(expected[-1].flatten(1), next(weights), next(weights)))
    expected.append(F.linear(expected[-1].clamp(min=0), next(weights), next(weights)))

    torch.testing.assert_close(model(images), softmax(expected[-1]))
    assert [tuple(output.shape[1:]) for output in outputs] == [(32, 13, 13), (64, 5, 5), (128,), (10,)]
    for ours, theirs in zip(outputs, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_it_has_the_layers_of_its_definition():
    shapes = [tuple(parameter.shape) for parameter in build().parameters()]

    assert shapes[::2] == [(32, 1, 3, 3), (64, 32, 3, 3), (128, 1600), (10, 128)]


def test_dropout_acts_on_the_hidden_layer_in_training_only():
    model = build()
    images, _labels = example_batch(MNISTCNNConfig(), batch_size=3)

    assert model.dropout.p == 0.5
    assert not torch.equal(model(images), model(images))
    assert torch.equal(model.eval()(images), model(images))


def test_the_published_loss_takes_the_softmax_of_a_softmax():
    model = build(dropout=0.0)
    images, labels = example_batch(MNISTCNNConfig(), batch_size=3)

    probabilities = model(images)

    twice = softmax(probabilities)[torch.arange(3), labels]
    torch.testing.assert_close(loss(probabilities, labels), -twice.log().mean())


def test_with_two_softmaxes_the_loss_of_a_perfect_answer_is_not_zero():
    certain, labels = torch.eye(10), torch.arange(10)

    assert loss(certain, labels).item() == pytest.approx(math.log(math.e + 9) - 1)
    assert loss(100 * certain, labels).item() == pytest.approx(0.0, abs=1e-6)


def test_without_the_softmax_it_gives_logits():
    torch.manual_seed(0)
    published = build().eval()
    plain = build("mnist_logits").eval()
    plain.load_state_dict(published.state_dict())
    images, _labels = example_batch(MNISTCNNConfig(), batch_size=3)

    torch.testing.assert_close(softmax(plain(images)), published(images))


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="9 x 9 pixels are too small"):
        build(image_size=9)
