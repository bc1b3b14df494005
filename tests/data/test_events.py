"""Generated events look like those of the detector, and are the same each time."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.data.events import Hits, NeutrinoEvents, make_dense_images, make_events


def statistics(images, labels):
    """Measure occupancy, the share of background among hits, and the median charge."""
    charges = images[images > 0]
    return (images > 0).float().mean().item(), (labels[images > 0] == 0).float().mean().item(), charges.median().item()


@pytest.mark.parametrize(
    ("num_events", "height", "width"), [pytest.param(6, 1280, 2048, marks=pytest.mark.slow), (30, 160, 256)]
)
def test_occupancy_shares_and_charges_are_like_the_detectors(num_events, height, width):
    images, labels = make_events(num_events, height=height, width=width)

    occupancy, background, median = statistics(images, labels)

    assert occupancy == pytest.approx(0.009, rel=0.3)
    assert background == pytest.approx(0.55, abs=0.02)
    assert median == pytest.approx(9.0, abs=0.6)
    assert images[images > 0].min() >= 5.0


def test_charges_have_a_long_tail():
    images, _labels = make_events(30, height=160, width=256)

    # the detector's p99 is 169
    assert 100 < np.percentile(images[images > 0].numpy(), 99) < 220


def test_every_plane_of_every_event_has_all_classes_and_only_where_there_is_charge():
    images, labels = make_events(30, height=64, width=96)

    assert all(plane.unique().tolist() == [0, 1, 2] for event in labels for plane in event)
    assert (images[labels > 0] > 0).all()


def test_cosmic_rays_cross_the_frame_and_neutrinos_do_not():
    _images, labels = make_events(20, height=160, width=256)
    rows = torch.arange(160)[:, None]

    def extents(label):
        heights = []
        for plane in (labels == label).flatten(0, 1):
            seen = rows.expand_as(plane)[plane]
            heights.append((seen.max() - seen.min()).item())
        return sorted(heights)

    assert np.median(extents(1)) > 150
    assert extents(2)[-1] < 80


def test_an_event_does_not_depend_on_how_many_there_are():
    images, labels = make_events(3, height=32, width=48, seed=5)
    more = NeutrinoEvents(9, height=32, width=48, seed=5)

    assert all(torch.equal(more[event][0], images[event]) for event in range(3))
    assert torch.equal(more[-7][1], labels[2])
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images, make_events(3, height=32, width=48, seed=6)[0])


def test_the_random_streams_of_others_are_left_alone():
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()

    make_events(1, height=32, width=32)

    assert torch.equal(torch.get_rng_state(), torch_before)
    assert (np.random.get_state()[1] == numpy_before).all()


def test_workers_of_a_loader_make_the_same_events():
    events = NeutrinoEvents(4, height=32, width=48, downsample=1)

    assert torch.equal(pickle.loads(pickle.dumps(events))[2][0], events[2][0])
    loader = torch.utils.data.DataLoader(events, batch_size=2)
    assert [images.shape for images, _labels in loader] == [(2, 3, 16, 24)] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"height": 8}, "8 x 2048 pixels; a frame has 16 x 16"),
        ({"num_events": -1}, "-1 events"),
        ({"downsample": 9}, "cannot be halved 9 times"),
    ],
)
def test_events_that_cannot_be_made_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        NeutrinoEvents(**{"num_events": 1, **arguments})


def test_there_are_as_many_events_as_asked_for():
    with pytest.raises(IndexError, match="event 3 of 3"):
        NeutrinoEvents(3, height=32, width=32)[3]


def some_hits(seed, *, height, width):
    random = np.random.default_rng(seed)
    pixels = random.permutation(height * width)[: random.integers(0, height * width + 1)]
    charges = random.random(len(pixels)).astype(np.float32)
    return Hits(pixels // width, pixels % width, charges, random.integers(0, 3, len(pixels)))


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(0, 2))
def test_halved_images_have_mean_charges_and_largest_labels(seed, downsample):
    planes = [some_hits([seed, plane], height=8, width=12) for plane in range(3)]
    full, full_labels = make_dense_images(planes, height=8, width=12)

    image, labels = make_dense_images(planes, height=8, width=12, downsample=downsample)

    pooled = torch.nn.functional.avg_pool2d(full, 2**downsample)
    torch.testing.assert_close(image, pooled)
    assert torch.equal(labels.double(), torch.nn.functional.max_pool2d(full_labels.double(), 2**downsample))


def test_a_hit_lies_in_the_row_of_its_tick_and_the_column_of_its_wire():
    hits = Hits(np.array([2]), np.array([5]), np.array([7.0]), np.array([1]))

    image, labels = make_dense_images([hits], height=4, width=8)

    assert image.nonzero().tolist() == labels.nonzero().tolist() == [[0, 2, 5]]
    assert (image.dtype, labels.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(("downsample", "message"), [(3, "12 pixels cannot be halved 3 times"), (-1, "is -1")])
def test_sides_that_cannot_be_halved_are_refused(downsample, message):
    with pytest.raises(ValueError, match=message):
        make_dense_images([], height=8, width=12, downsample=downsample)
