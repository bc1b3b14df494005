"""Configurations have the published sizes, and refuse what cannot be built."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
import torch
from torch import nn

from porting.models.uresnet2d import VARIANTS, Schedule, UResNet2DConfig, build

# parameters, convolutions and channels of the levels, as published
PUBLISHED = {
    "uresnet": (18_382_131, 90, range(16, 113, 16)),
    "a21": (8_525_699, 56, range(8, 57, 8)),
    "a21_upstream": (8_510_547, 45, range(8, 57, 8)),
    "scc21": (18_367_891, 90, range(16, 113, 16)),
    "polaris": (1_926_403, 50, range(16, 129, 16)),
}


def test_the_variants_are_those_that_were_measured():
    assert set(VARIANTS) == set(PUBLISHED)


@pytest.mark.parametrize("variant", PUBLISHED)
def test_a_variant_has_the_published_sizes(variant):
    num_parameters, num_convolutions, channels = PUBLISHED[variant]
    model = build(variant)

    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == num_convolutions
    assert channels_of_levels(model) == list(channels)


def channels_of_levels(model):
    channels, level = [model.first.convolution.out_channels], model.core
    while hasattr(level, "shrink"):
        channels.append(level.shrink[1].convolution.out_channels)
        level = level.below
    return channels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": 8}, "640 x 1024 pixels cannot be halved 8 times"),
        ({"spatial_size": (640, 1000)}, "640 x 1000 pixels cannot be halved 6 times"),
        ({"connections": "product"}, "`connections` is 'product'; it can be 'concat', 'sum', 'none'"),
        ({"growth": "fast"}, "'additive', 'multiplicative'"),
        ({"downsampling": "mean"}, "'max_pooling', 'strided'"),
        ({"upsampling": "nearest"}, "'interpolation', 'transposed'"),
        ({"kernel": 4}, "only odd kernels"),
        ({"depth": 0}, "`depth` is 0"),
    ],
)
def test_what_cannot_be_built_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(UResNet2DConfig(), **changes)


def test_an_unknown_variant_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no variant 'a22'; there are 'uresnet', 'a21'"):
        build("a22")


@pytest.mark.parametrize(("downsample", "size"), [(0, (1280, 2048)), (1, (640, 1024))])
def test_the_size_of_a_downsampled_image(downsample, size):
    assert UResNet2DConfig().at_downsample(downsample).spatial_size == size


@pytest.mark.parametrize(("depth", "downsample"), [(6, 2), (7, 1), (3, 5), (6, -1)])
def test_depth_and_downsampling_are_less_than_8_together(depth, downsample):
    config = UResNet2DConfig(depth=depth)

    with pytest.raises(ValueError, match="not less than 8 together"):
        config.at_downsample(downsample)


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        (0, 1e-5),
        (0.5, 1.55e-4),
        (1, 3e-4),
        (10, 3e-4),
        (20, 3e-4),
        (21, 3e-4),
        (22, 1.736493e-4),
        (26, 1.013543e-4),
        (100, 1e-4),
    ],
)
def test_the_rate_rises_stays_and_falls_to_its_floor(epoch, rate):
    assert Schedule(steps_per_epoch=10)(int(10 * epoch)) == pytest.approx(rate, rel=1e-5)


def test_the_rate_has_no_jumps():
    schedule = Schedule(steps_per_epoch=50)
    rates = [schedule(step) for step in range(30 * 50)]

    assert max(abs(after - before) for before, after in zip(rates, rates[1:])) < 6e-6


def test_a_scheduler_of_an_optimizer_with_rate_one_gives_the_rate_itself():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = Schedule(steps_per_epoch=4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    rates = []

    for _ in range(8):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()

    assert rates == [schedule(step) for step in range(8)]


def test_a_schedule_can_be_stored_and_sent():
    schedule = Schedule(steps_per_epoch=4, peak_rate=1e-3)

    assert pickle.loads(pickle.dumps(schedule)) == schedule


def test_an_epoch_without_steps_is_refused():
    with pytest.raises(ValueError, match="`steps_per_epoch` is 0"):
        Schedule(steps_per_epoch=0)
