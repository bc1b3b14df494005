"""Drawn digits are well formed, repeatable, and can be learnt."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from porting.data.digits import load_digits, make_digits
from porting.diagnostics import PortingError


@settings(max_examples=20, deadline=None)
@given(num_samples=st.integers(0, 40), size=st.integers(8, 40), seed=st.integers(0, 2**32))
def test_digits_have_the_documented_form(num_samples, size, seed):
    images, labels = make_digits(num_samples, seed=seed, size=size)

    assert images.shape == (num_samples, 1, size, size)
    assert images.dtype == torch.float32
    assert labels.shape == (num_samples,)
    assert labels.dtype == torch.int64
    assert ((images >= 0) & (images <= 1)).all()
    assert ((labels >= 0) & (labels <= 9)).all()


def test_a_longer_series_begins_with_the_shorter_one():
    images, labels = make_digits(1500, seed=3)
    first_images, first_labels = make_digits(1100, seed=3)

    assert torch.equal(images[:1100], first_images)
    assert torch.equal(labels[:1100], first_labels)


def test_another_seed_gives_other_digits():
    assert not torch.equal(make_digits(8, seed=0)[0], make_digits(8, seed=1)[0])


def test_all_ten_digits_are_about_as_frequent():
    counts = torch.bincount(make_digits(5000, seed=0)[1], minlength=10)

    assert counts.min() > 400
    assert counts.max() < 600


def test_there_is_ink_and_more_paper():
    images = make_digits(500, seed=0)[0]
    ink = (images > 0.5).float().mean(dim=(1, 2, 3))

    assert ink.min() > 0.01
    assert ink.max() < 0.4


def test_the_global_random_streams_stay_where_they_are(random_states):
    before = random_states()

    make_digits(10, seed=0)

    assert random_states() == before


@pytest.mark.slow
def test_a_perceptron_learns_the_digits():
    torch.manual_seed(0)
    images, labels = make_digits(6000, seed=0)
    test_images, test_labels = make_digits(1000, seed=1)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(0)

    for rows in (rows for _ in range(10) for rows in torch.randperm(6000, generator=generator).split(128)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()

    assert (model(test_images).argmax(dim=1) == test_labels).float().mean() >= 0.92


def test_scikit_learns_digits_are_loaded():
    pytest.importorskip("sklearn")

    images, labels = load_digits()

    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == torch.float32
    assert images.max() == 1
    assert torch.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)

    with pytest.raises(PortingError, match=r"X001(.|\n)*recipes"):
        load_digits()
