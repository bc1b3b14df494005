"""Detectors of transformers train like plain PyTorch: by their remedy, and by grids that read images."""

from __future__ import annotations

import importlib
import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

import porting  # noqa: E402 - nothing may contact the network before
from porting.remedies.patching import find_attribute  # noqa: E402
from porting.remedies.sources import edit_function  # noqa: E402
from porting.remedies.transformers_detection import PATCHES  # noqa: E402
from tests.remedies.detectors import make_detector, make_images, train_plainly  # noqa: E402


def assert_trains_like_plain(kind, stages):
    plain, model = make_detector(kind, stages), make_detector(kind, stages)
    batch = make_images()
    expected = train_plainly(plain, batch)

    ported = porting.to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), device="sim")

    assert [float(ported(**batch)) for _step in range(3)] == pytest.approx(expected, rel=1e-5)
    return " ".join(finding.message for finding in ported.report().findings)


@pytest.mark.slow
def test_deformable_attention_reads_its_images_by_grids():
    messages = assert_trains_like_plain("DeformableDetr", ["stage2", "stage3", "stage4"])

    assert "`F.grid_sample`, which the device lacks" in messages
    assert "`finite-activations` changed code of transformers" in messages


def test_a_detector_without_deformable_attention_trains_too():
    assert "`finite-activations` changed code" in assert_trains_like_plain("Detr", ["stage4"])


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.target.partition(":")[2])
def test_the_installed_layers_read_what_the_remedy_changes(patch):
    importlib.import_module(patch.target.partition(":")[0])
    owner, name = find_attribute(patch.target)
    original = getattr(owner, name)

    # one that does not fit is an EditMismatchError
    assert edit_function(original, patch.edits) is not original


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_what_is_chosen_is_what_the_layer_computes(value):
    layer = make_detector("Detr", ["stage4"]).model.model.encoder.layers[0]
    patch = next(patch for patch in PATCHES if ":DetrEncoderLayer." in patch.target)
    changed = edit_function(type(layer).forward, patch.edits)
    x = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(1)) * value

    expected = layer(x, attention_mask=None, spatial_position_embeddings=torch.zeros_like(x))

    found = changed(layer, x, attention_mask=None, spatial_position_embeddings=torch.zeros_like(x))
    torch.testing.assert_close(found, expected, equal_nan=True)
