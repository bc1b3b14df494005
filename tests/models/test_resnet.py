"""Residual networks have the published sizes."""

from __future__ import annotations

import pytest
import torch

from porting.models.resnet import ResNet, ResNetConfig, example_batch, loss


@pytest.mark.parametrize(("blocks", "expected"), [((2, 2, 2, 2), 11_689_512), ((3, 4, 6, 3), 21_797_672)])
def test_the_number_of_parameters_is_the_published_one(blocks, expected):
    model = ResNet(ResNetConfig(blocks=blocks))

    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_images_of_any_size_become_logits():
    model = ResNet(ResNetConfig(width=4, num_classes=7))

    assert model(torch.zeros(2, 3, 40, 56)).shape == (2, 7)


def test_the_example_batch_trains():
    config = ResNetConfig(width=4, num_classes=7, image_size=32)
    images, labels = example_batch(config, batch_size=3)

    loss(ResNet(config)(images), labels).backward()


def test_a_seed_always_gives_the_same_batch():
    config = ResNetConfig(image_size=8)

    assert torch.equal(example_batch(config, batch_size=2, seed=5)[0], example_batch(config, batch_size=2, seed=5)[0])
