"""Pictures that are made are well formed, repeatable, and their labels can be learnt."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from porting.data.images import fake_data, make_labelled_images, make_silhouettes, make_unlabelled_images


def textures(num_samples, *, size, seed):
    return make_labelled_images(num_samples, size=size, seed=seed)


def unlabelled(num_samples, *, size, seed):
    return make_unlabelled_images(num_samples, size=size, seed=seed), torch.zeros(num_samples, dtype=torch.int64)


all_kinds = pytest.mark.parametrize(
    ("make", "num_channels"),
    [(textures, 3), (make_silhouettes, 1), (unlabelled, 3)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)


@all_kinds
@settings(max_examples=5, deadline=None)
@given(num_samples=st.integers(0, 20), size=st.integers(4, 40), seed=st.integers(0, 2**32))
def test_pictures_have_the_documented_form(make, num_channels, num_samples, size, seed):
    images, labels = make(num_samples, size=size, seed=seed)

    assert images.shape == (num_samples, num_channels, size, size)
    assert images.dtype == torch.float32
    assert labels.shape == (num_samples,)
    assert labels.dtype == torch.int64
    assert ((images >= 0) & (images <= 1)).all()
    assert ((labels >= 0) & (labels <= 9)).all()


@all_kinds
def test_a_longer_series_begins_with_the_shorter_one(make, num_channels):
    # large enough that the longer one takes several portions
    longer, shorter = make(60, size=160, seed=3), make(3, size=160, seed=3)

    assert torch.equal(longer[0][:3], shorter[0])
    assert torch.equal(longer[1][:3], shorter[1])


@all_kinds
def test_the_global_random_streams_stay_where_they_are(make, num_channels, random_states):
    before = random_states()

    make(4, size=16, seed=0)

    assert random_states() == before


@settings(max_examples=10, deadline=None)
@given(num_classes=st.integers(1, 1000))
def test_textures_have_as_many_classes_as_asked_for(num_classes):
    labels = make_labelled_images(600, num_classes=num_classes, size=4, seed=0)[1]

    assert labels.min() >= 0
    assert labels.max() < num_classes


def test_colours_do_not_tell_the_label():
    images, labels = make_labelled_images(4000, seed=0)
    means = torch.stack([images[labels == label].mean(dim=(0, 2, 3)) for label in range(10)])

    assert (means - 0.5).abs().max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("make", "num_channels"), [(textures, 3), (make_silhouettes, 1)])
def test_a_convolutional_network_learns_the_labels(make, num_channels):
    torch.manual_seed(0)
    images, labels = make(1500, size=28, seed=0)
    test_images, test_labels = make(300, size=28, seed=1)
    model = nn.Sequential(
        nn.Conv2d(num_channels, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(288, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    for rows in (rows for _ in range(6) for rows in torch.arange(1500).split(50)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()

    assert (model.eval()(test_images).argmax(dim=1) == test_labels).float().mean() > 0.85


@pytest.mark.slow
def test_unlabelled_pictures_are_blobs_and_checkerboards_by_halves():
    images = make_unlabelled_images(400, seed=0)
    num_colours = torch.tensor([len(image.flatten(1).unique(dim=1)[0]) for image in images])

    assert 0.4 < (num_colours == 2).float().mean() < 0.6


def test_fake_data_has_the_sizes_of_the_examples():
    inputs, labels = fake_data(150, seed=0)

    assert inputs.shape == (150, 784)
    assert labels.unique().tolist() == list(range(10))
