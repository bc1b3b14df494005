"""Images are read at the places of a grid as `F.grid_sample` reads them, with the gradients of image and grid."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import porting
from porting import Fallback
from porting.remedies.sampled import make_affine_grid, sample_grid
from tests.remedies.parity import assert_same_gradients, assert_trains_like_plain

PADDINGS = ("zeros", "border", "reflection")


def make_images(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def make_grid(*shape):
    """Make places, a third of which lie outside, some of them far."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)) * 1.3


class Warped(nn.Module):
    """An image that a layer has computed, read at places that another one has."""

    def __init__(self, num_dims, **arguments):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(5, 5)
        self.places = nn.Parameter(make_grid(2, *[3] * num_dims, num_dims))
        self.arguments = arguments

    def forward(self, x):
        return F.grid_sample(self.layer(x), self.places, **self.arguments).pow(2).mean()


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 1, 1, 4), (3, 2, 2, 2)])
def test_images_and_their_gradients_are_those_of_torch(shape, mode, padding_mode, align_corners):
    arguments = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}

    assert_same_gradients(
        functools.partial(F.grid_sample, **arguments),
        functools.partial(sample_grid, **arguments),
        make_images(*shape),
        make_grid(shape[0], 4, 3, 2),
    )


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_volumes_and_their_gradients_are_those_of_torch(mode, padding_mode, align_corners):
    arguments = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}

    assert_same_gradients(
        functools.partial(F.grid_sample, **arguments),
        functools.partial(sample_grid, **arguments),
        make_images(2, 3, 4, 5, 2),
        make_grid(2, 2, 3, 4, 3),
    )


@pytest.mark.parametrize("padding_mode", PADDINGS)
def test_places_on_the_border_have_the_gradient_of_torch(padding_mode):
    corners = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [0.25, 1.0]]).reshape(1, 2, 2, 2)
    arguments = {"padding_mode": padding_mode, "align_corners": True}

    assert_same_gradients(
        functools.partial(F.grid_sample, **arguments),
        functools.partial(sample_grid, **arguments),
        make_images(1, 2, 3, 4),
        corners,
    )


def test_what_lies_outside_does_not_count_even_where_the_image_is_infinite():
    images = torch.full((1, 1, 2, 2), torch.inf)
    places = torch.full((1, 1, 1, 2), 9.0)

    assert sample_grid(images, places, align_corners=False).tolist() == [[[[0.0]]]]


def test_halves_are_read_at_the_places_of_floats():
    images, places = make_images(1, 2, 5, 300).half(), make_grid(1, 4, 4, 2).half()

    values = sample_grid(images, places, align_corners=False)

    expected = F.grid_sample(images.float(), places.float(), align_corners=False)
    torch.testing.assert_close(values, expected.half(), rtol=0.0, atol=2e-3)


@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_model_that_warps_trains_like_plain(mode, padding_mode):
    assert_trains_like_plain(
        lambda: Warped(2, mode=mode, padding_mode=padding_mode, align_corners=False), make_images(2, 3, 4, 5)
    )


def test_a_model_that_warps_volumes_trains_like_plain():
    assert_trains_like_plain(lambda: Warped(3, align_corners=True), make_images(2, 3, 4, 2, 5))


def test_a_model_that_reads_the_nearest_trains_like_plain():
    class Nearest(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(5, 5)

        def forward(self, x, places):
            images = self.layer(x)
            return torch.grid_sampler(images, places, 1, 1, False).pow(2).mean()

    assert_trains_like_plain(Nearest, make_images(2, 3, 4, 5), make_grid(2, 3, 3, 2))


# torch says so of one pixel, whose corners are in one place
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid behavior has changed for unit-size")
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", [(2, 1, 4, 5), (2, 3, 1, 2), (2, 1, 3, 1, 4)])
def test_affine_grids_and_their_gradients_are_those_of_torch(size, align_corners):
    num_dims = len(size) - 2
    arguments = {"size": size, "align_corners": align_corners}

    assert_same_gradients(
        functools.partial(F.affine_grid, **arguments),
        functools.partial(make_affine_grid, **arguments),
        make_images(size[0], num_dims, num_dims + 1),
    )


def test_a_spatial_transformer_trains_like_plain():
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.map = nn.Linear(20, 6)

        def forward(self, x):
            theta = self.map(x.flatten(1)).view(-1, 2, 3)
            grid = F.affine_grid(theta, [2, 1, 4, 5], align_corners=False)
            return F.grid_sample(x, grid, align_corners=False).pow(2).mean()

    assert_trains_like_plain(Transformer, make_images(2, 1, 4, 5))


def test_what_torch_refuses_is_left_to_torch():
    images, places = make_images(1, 1, 2, 2), make_grid(1, 2, 2, 2)

    assert sample_grid(images, places, mode="cubic") is Fallback
    assert sample_grid(images, places, padding_mode="ones") is Fallback
    assert sample_grid(images, places[..., :1]) is Fallback
    assert sample_grid(images, places.half()) is Fallback
    assert sample_grid(make_images(1, 1, 2, 2, 2), make_grid(1, 2, 2, 2, 3), mode="bicubic") is Fallback
    assert make_affine_grid(places, [1, 1, 2, 2]) is Fallback


def test_grids_are_named_in_the_report():
    model = Warped(2, align_corners=True)
    ported = porting.to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")

    ported(make_images(2, 3, 4, 5))

    messages = [finding.message for finding in ported.report().findings if finding.code == "C025"]
    assert ["F.grid_sample" in message for message in messages] == [True]
