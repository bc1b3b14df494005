"""UResNet2D has the sizes that were measured of its model, and trains on three planes with one set of weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from porting.models.uresnet2d import UResNet2D, UResNet2DConfig, example_batch, loss

SMALL = UResNet2DConfig(filters=2, depth=2, blocks_deepest=1, blocks_final=1, bottleneck=4, height=16, width=24)
# parameters and convolutions of the published configurations
PUBLISHED = [
    (UResNet2DConfig(), 18_382_131, 90),
    (UResNet2DConfig(filters=8, residual=False), 8_525_699, 56),
    (UResNet2DConfig(filters=8, residual=False, blocks_final=0, joins="sum"), 8_510_547, 45),
    (UResNet2DConfig(batch_norm=False), 18_367_891, 90),
    (
        UResNet2DConfig(depth=7, blocks_deepest=2, blocks_final=2, bottleneck=96, residual=False, joins="sum"),
        1_926_403,
        50,
    ),
]


@pytest.mark.parametrize(("config", "num_parameters", "num_convolutions"), PUBLISHED)
def test_the_sizes_are_the_published_ones(config, num_parameters, num_convolutions):
    model = UResNet2D(config)

    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == num_convolutions


@pytest.mark.parametrize("joins", ["concat", "sum", "none"])
def test_every_pixel_of_every_plane_gets_a_score_of_each_class(joins):
    config = UResNet2DConfig(**{**vars(SMALL), "joins": joins})

    assert UResNet2D(config)(torch.zeros(2, 3, 16, 24)).shape == (2, 3, 3, 16, 24)


def test_planes_share_their_weights_and_meet_at_the_bottleneck_only():
    model = UResNet2D(SMALL).eval()
    images, _ = example_batch(SMALL, batch_size=1)

    scores, exchanged = model(images), model(images.flip(1))

    # the bottleneck tells the planes apart, and everything else is the same for all of them
    assert not torch.allclose(scores, exchanged.flip(1))
    assert len([name for name, _ in model.named_parameters() if name.startswith("first.")]) == 4


def test_the_loss_is_that_of_the_three_planes_added_up():
    scores, labels = torch.zeros(1, 3, 3, 4, 4), torch.zeros(1, 3, 4, 4, dtype=torch.int64)

    assert loss(scores, labels).item() == pytest.approx(3 * math.log(3))


def test_empty_pixels_that_are_known_to_be_empty_count_little():
    labels = torch.zeros(1, 3, 4, 4, dtype=torch.int64)
    labels[..., 0, 0] = 1
    scores = torch.zeros(1, 3, 3, 4, 4)
    scores[:, :, 0] = 8.0

    assert loss(scores, labels).item() > 3 * 7.0


@pytest.mark.parametrize(
    ("changes", "message"), [({"depth": 5}, "cannot be halved 5 times"), ({"joins": "product"}, "'concat', 'sum'")]
)
def test_what_cannot_be_built_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        UResNet2DConfig(**{**vars(SMALL), **changes})
