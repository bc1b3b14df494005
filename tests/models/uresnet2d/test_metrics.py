"""Metrics are those of their definition, written a second time here with sets of pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting import to_ipu
from porting.data.events import make_events
from porting.models.uresnet2d import (
    METRICS,
    build,
    chunk_planes,
    cosmic_iou,
    loss,
    mean_iou,
    neutrino_iou,
    non_background_accuracy,
    plane_metrics,
    total_accuracy,
)

NAMES = ["Total_Accuracy", "Cosmic_IoU", "Neutrino_IoU", "Non_Bkg_Accuracy", "mIoU"]


def scores_of(classes):
    """Make logits_BPCHW whose best class is the given one."""
    return torch.nn.functional.one_hot(classes, 3).permute(0, 1, 4, 2, 3).float()


def literal_metrics(taken, true):
    """All metrics of one plane, taken_BHW and true_BHW, event by event."""
    accuracies, non_background, cosmic, neutrino = [], [], [], []
    for event in range(len(true)):
        pixels = list(np.ndindex(true[event].shape))
        right = {p for p in pixels if taken[event][p] == true[event][p]}
        hits = {p for p in pixels if true[event][p] != 0}
        accuracies.append(len(right) / len(pixels))
        non_background.append(len(right & hits) / len(hits) if hits else math.nan)
        for label, found in ((1, cosmic), (2, neutrino)):
            a, b = ({p for p in pixels if values[event][p] == label} for values in (taken, true))
            found.append(len(a & b) / len(a | b) if a | b else 1.0)
    means = [np.mean(values) for values in (accuracies, cosmic, neutrino, non_background)]
    return dict(zip(NAMES, [*means, (means[1] + means[2]) / 2]))


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 3))
def test_metrics_are_their_definition(seed, num_taken, num_true):
    generator = torch.Generator().manual_seed(seed)
    taken = torch.randint(num_taken, (2, 3, 2, 3), generator=generator)
    true = torch.randint(num_true, (2, 3, 2, 3), generator=generator)

    found = plane_metrics(scores_of(taken), true)

    expected = [literal_metrics(taken[:, plane].numpy(), true[:, plane].numpy()) for plane in range(3)]
    for name in NAMES:
        by_plane = [values[name] for values in expected]
        assert [found[f"plane{plane}/{name}"].item() for plane in range(3)] == pytest.approx(by_plane, nan_ok=True)
        assert found[f"Average/{name}"].item() == pytest.approx(0.3333333 * sum(by_plane), nan_ok=True)
    averages = {name: metric(scores_of(taken), true) for name, metric in METRICS.items()}
    torch.testing.assert_close(averages, {name: found[name] for name in METRICS}, equal_nan=True)


def test_a_perfect_prediction_has_three_times_a_third():
    labels = torch.arange(3).repeat(2, 3, 2, 2)

    for metric in (total_accuracy, cosmic_iou, neutrino_iou, non_background_accuracy, mean_iou):
        assert metric(scores_of(labels), labels).item() == pytest.approx(0.9999999)


def test_without_pixels_there_is_full_agreement_and_no_accuracy():
    labels = torch.zeros(1, 3, 4, 4, dtype=torch.int64)

    assert mean_iou(scores_of(labels), labels).item() == pytest.approx(0.9999999)
    assert math.isnan(non_background_accuracy(scores_of(labels), labels).item())


def test_one_event_without_hits_makes_the_accuracy_of_its_batch_no_number():
    labels = torch.ones(2, 3, 4, 4, dtype=torch.int64)
    labels[0] = 0

    assert math.isnan(non_background_accuracy(scores_of(labels), labels).item())


@pytest.mark.slow
def test_a_device_computes_them_beside_the_loss():
    images, labels = make_events(2, height=32, width=32)
    model = build("scc21", depth=1, filters=2, bottleneck=2, spatial_size=(32, 32))
    scores = model(images).detach()
    ported = to_ipu(model, loss, label_transform=chunk_planes, metrics=METRICS)

    _scores, _loss, found = ported(images, labels)

    expected = {name: metric(scores, labels) for name, metric in METRICS.items()}
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
