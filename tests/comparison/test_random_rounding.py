"""Random rounding changes the last bits of what is computed, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.comparison import random_rounding
from porting.comparison.random_rounding import RandomRounding

THIRDS = torch.arange(1.0, 65.0) / 3


def test_whole_numbers_integers_and_views_are_kept():
    with RandomRounding():
        exact = torch.ones(4) + torch.eye(4)
        counted = torch.arange(4) * 3
        viewed = THIRDS.view(8, 8)

    assert torch.equal(exact, torch.ones(4) + torch.eye(4))
    assert counted.tolist() == [0, 3, 6, 9]
    assert torch.equal(viewed.flatten(), THIRDS)


def test_what_is_chosen_or_moved_is_kept():
    with RandomRounding():
        maximum = THIRDS.amax()
        chosen = THIRDS[torch.tensor([6, 3])]
        joined = torch.cat([THIRDS, THIRDS])

    assert maximum == THIRDS[-1]
    assert torch.equal(chosen, torch.stack([THIRDS[6], THIRDS[3]]))
    assert torch.equal(joined[64:], THIRDS)


@pytest.mark.parametrize("choose", [torch.amax, torch.max, torch.amin, torch.median])
def test_what_is_chosen_has_a_gradient(choose):
    weight = THIRDS.clone().requires_grad_()

    with RandomRounding():
        choose(weight.sin() / 3).backward()

    assert weight.grad.isfinite().all()
    assert weight.grad.count_nonzero() == 1


aten = torch.ops.aten
ROW, OTHER = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).unbind()
IMAGE, VOLUME, INDEX = ROW.view(1, 1, 8, 8), ROW.view(1, 1, 4, 4, 4), torch.tensor([5, 3])
PLACES = torch.arange(64)
EXACT = {
    "abs": lambda: aten.abs(ROW),
    "adaptive_max_pool2d": lambda: aten.adaptive_max_pool2d(IMAGE, [3, 3]),
    "adaptive_max_pool3d": lambda: aten.adaptive_max_pool3d(VOLUME, [3, 3, 3]),
    "cat": lambda: aten.cat([ROW, OTHER]),
    "clamp": lambda: aten.clamp(ROW, OTHER.amin(), OTHER.amax()),
    "clamp_max": lambda: aten.clamp_max(ROW, 0.0),
    "clamp_min": lambda: aten.clamp_min(ROW, 0.0),
    "constant_pad_nd": lambda: aten.constant_pad_nd(ROW, [1, 2]),
    "diagonal_backward": lambda: aten.diagonal_backward(ROW, [64, 64], 0, 0, 1),
    "embedding": lambda: aten.embedding(ROW.view(8, 8), INDEX),
    "flip": lambda: aten.flip(ROW, [0]),
    "fractional_max_pool2d": lambda: aten.fractional_max_pool2d(IMAGE, [2, 2], [3, 3], torch.rand(1, 1, 2)),
    "fractional_max_pool3d": lambda: aten.fractional_max_pool3d(VOLUME, [2] * 3, [2] * 3, torch.rand(1, 1, 3)),
    "gather": lambda: aten.gather(ROW, 0, INDEX),
    "hardtanh": lambda: aten.hardtanh(ROW, -9.0, 9.0),
    "hardtanh_backward": lambda: aten.hardtanh_backward(OTHER, ROW, -1.0, 1.0),
    "im2col": lambda: aten.im2col(IMAGE, [2, 2], [1, 1], [1, 1], [1, 1]),
    "index": lambda: aten.index(ROW, [INDEX]),
    "index_select": lambda: aten.index_select(ROW, 0, INDEX),
    "kthvalue": lambda: aten.kthvalue(ROW, 3),
    "masked_fill": lambda: aten.masked_fill(ROW, ROW > 0, 0.0),
    "masked_select": lambda: aten.masked_select(ROW, ROW > 0),
    "max_pool2d_with_indices": lambda: aten.max_pool2d_with_indices(IMAGE, [2, 2]),
    "max_pool3d_with_indices": lambda: aten.max_pool3d_with_indices(VOLUME, [2, 2, 2]),
    "max_unpool2d": lambda: aten.max_unpool2d(IMAGE, PLACES.view(1, 1, 8, 8), [16, 16]),
    "max_unpool3d": lambda: aten.max_unpool3d(VOLUME, PLACES.view(1, 1, 4, 4, 4), [8] * 3, [2] * 3, [0] * 3),
    "pixel_shuffle": lambda: aten.pixel_shuffle(ROW.view(1, 4, 4, 4), 2),
    "pixel_unshuffle": lambda: aten.pixel_unshuffle(IMAGE, 2),
    "reflection_pad1d": lambda: aten.reflection_pad1d(ROW.view(1, 64), [1, 1]),
    "reflection_pad2d": lambda: aten.reflection_pad2d(IMAGE, [1] * 4),
    "reflection_pad3d": lambda: aten.reflection_pad3d(VOLUME, [1] * 6),
    "repeat": lambda: aten.repeat(ROW, [3]),
    "replication_pad1d": lambda: aten.replication_pad1d(ROW.view(1, 64), [1, 1]),
    "replication_pad2d": lambda: aten.replication_pad2d(IMAGE, [1] * 4),
    "replication_pad3d": lambda: aten.replication_pad3d(VOLUME, [1] * 6),
    "roll": lambda: aten.roll(ROW, [3]),
    "select_backward": lambda: aten.select_backward(ROW, [2, 64], 0, 1),
    "select_scatter": lambda: aten.select_scatter(ROW.view(8, 8), OTHER[:8], 0, 3),
    "slice_backward": lambda: aten.slice_backward(ROW, [99], 0, 0, 64, 1),
    "slice_scatter": lambda: aten.slice_scatter(ROW, OTHER[:3], 0, 0, 3),
    "stack": lambda: aten.stack([ROW, OTHER]),
    "take": lambda: aten.take(ROW, INDEX),
    "threshold": lambda: aten.threshold(ROW, 0.5, 0.0),
    "threshold_backward": lambda: aten.threshold_backward(OTHER, ROW, 0.0),
    "topk": lambda: aten.topk(ROW, 5),
    "tril": lambda: aten.tril(ROW.view(8, 8)),
    "triu": lambda: aten.triu(ROW.view(8, 8)),
    "upsample_nearest1d": lambda: aten.upsample_nearest1d(ROW.view(1, 1, 64), [99]),
    "upsample_nearest2d": lambda: aten.upsample_nearest2d(IMAGE, [11, 11]),
    "upsample_nearest3d": lambda: aten.upsample_nearest3d(VOLUME, [5, 5, 5]),
    "where": lambda: aten.where(ROW > 0, ROW, OTHER),
    **{
        name: lambda name=name: getattr(aten, name)(ROW)
        for name in "amax amin aminmax max median min nanmedian".split()
    },
    **{name: lambda name=name: getattr(aten, name)(ROW) for name in "clone mode msort neg relu sort".split()},
    **{name: lambda name=name: getattr(aten, name)(ROW, OTHER) for name in "fmax fmin maximum minimum".split()},
    **{name: lambda name=name: getattr(aten, name)(ROW, 0) for name in "cummax cummin".split()},
}


@pytest.mark.parametrize("name", sorted(one.partition("::")[2] for one in random_rounding._EXACT))
def test_an_exact_operator_hands_on_numbers_of_its_operands(name):
    known = torch.cat([ROW, OTHER]).tolist()
    known = {*known, *(-number for number in known), 0.0}

    with RandomRounding():
        result = EXACT[name]()

    results = [one for one in (result if isinstance(result, tuple) else [result]) if one.is_floating_point()]
    assert results
    assert all(known.issuperset(one.flatten().tolist()) for one in results)


def test_the_absolute_value_of_a_complex_number_is_a_root():
    spectrum = torch.fft.rfft(ROW)

    with RandomRounding():
        rounded = spectrum.abs()

    assert not torch.equal(rounded, spectrum.abs())
    torch.testing.assert_close(rounded, spectrum.abs(), rtol=1e-5, atol=1e-5)


def test_gradients_are_rounded_as_well():
    weight = THIRDS.clone().requires_grad_()

    with RandomRounding():
        torch.sin(weight).sum().backward()

    torch.testing.assert_close(weight.grad, torch.cos(THIRDS), rtol=1e-4, atol=1e-4)
    assert not torch.equal(weight.grad, torch.cos(THIRDS))


def test_the_random_stream_stays_where_it_is():
    before = torch.get_rng_state()

    with RandomRounding():
        torch.sin(THIRDS)

    assert torch.equal(torch.get_rng_state(), before)


def test_the_loss_of_a_model_that_has_learnt_its_batch_is_the_small_difference_of_large_numbers():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(16, 10, generator=generator) + 17.0 * torch.eye(10)[torch.arange(16) % 10]
    loss = nn.functional.cross_entropy(logits, torch.arange(16) % 10)

    with RandomRounding():
        rounded = nn.functional.cross_entropy(logits, torch.arange(16) % 10)

    exact = nn.functional.cross_entropy(logits.double(), torch.arange(16) % 10)
    assert (loss - exact).abs() > 1e-2 * exact
    assert (rounded - loss).abs() > 0.1 * (loss - exact).abs()
