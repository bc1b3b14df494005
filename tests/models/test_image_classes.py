"""Images that networks are tried with fit their loss."""

from __future__ import annotations

import math

import pytest
import torch

from porting.models.cnn import CNNConfig
from porting.models.image_classes import example_batch, loss


def test_images_are_square_and_labels_are_classes():
    images, labels = example_batch(CNNConfig(image_size=8, num_classes=3), batch_size=50)

    assert images.shape == (50, 1, 8, 8)
    assert set(labels.tolist()) == {0, 1, 2}


def test_who_knows_nothing_loses_the_logarithm_of_the_number_of_classes():
    assert loss(torch.zeros(4, 10), torch.arange(4)).item() == pytest.approx(math.log(10))
