"""The reference classifiers have the layers and the shapes that their names promise."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.models import make_cnn, make_mlp
from porting.models.classifiers import CNNConfig, MLPConfig, example_batch, loss


def kinds_of(model: nn.Module) -> list:
    return [type(layer).__name__ for layer in model]


def test_an_mlp_has_relu_between_its_layers_only():
    assert kinds_of(make_mlp((3, 4, 4, 2))) == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]


def test_two_sizes_are_one_layer():
    assert kinds_of(make_mlp((3, 2))) == ["Linear"]


@pytest.mark.parametrize("size", [4, 8, 28])
def test_a_cnn_takes_square_images(size):
    assert make_cnn(image_size=size, num_classes=7)(torch.zeros(2, 1, size, size)).shape == (2, 7)


def test_a_cnn_has_batchnorm_without_bias_before_it_and_dropout():
    model = make_cnn()

    assert {"BatchNorm2d", "Dropout"} <= set(kinds_of(model))
    assert [layer.bias for layer in model if isinstance(layer, nn.Conv2d)] == [None, None]


@pytest.mark.parametrize("config", [MLPConfig((6, 5, 3)), MLPConfig((6, 5, 1)), CNNConfig(image_size=8)])
def test_the_example_batch_of_a_configuration_trains_its_model(config):
    inputs, labels = example_batch(config, batch_size=4)

    loss(config.make()(inputs), labels).backward()


def test_a_single_logit_gets_the_binary_loss():
    assert loss(torch.zeros(2, 1), torch.ones(2, 1)).item() == pytest.approx(0.6931, abs=1e-4)
