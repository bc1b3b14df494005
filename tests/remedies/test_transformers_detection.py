"""Detectors of transformers train like plain PyTorch: by their remedy, and by grids that read images."""

from __future__ import annotations

import importlib
import os

import pytest
import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

import porting  # noqa: E402 - nothing may contact the network before
from porting.remedies.patching import find_attribute  # noqa: E402
from porting.remedies.sources import edit_function  # noqa: E402
from porting.remedies.transformers_detection import PATCHES  # noqa: E402

SMALL = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "num_queries": 5,
    "num_labels": 3,
    "dropout": 0.0,
    "disable_custom_kernels": True,
}


class Detector(nn.Module):
    """A small detector with the mean square of what it finds as its loss: its own matches boxes on the host."""

    def __init__(self, kind, stages):
        super().__init__()
        torch.manual_seed(0)
        backbone = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=stages
        )
        config = getattr(transformers, f"{kind}Config")(
            backbone_config=backbone, backbone=None, use_timm_backbone=False, use_pretrained_backbone=False, **SMALL
        )
        self.model = getattr(transformers, f"{kind}ForObjectDetection")(config)

    def forward(self, images, mask):
        found = self.model(pixel_values=images, pixel_mask=mask)
        return found.logits.pow(2).mean() + found.pred_boxes.pow(2).mean()


def assert_trains_like_plain(kind, stages):
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 64, 64, dtype=torch.int64)
    plain, model = Detector(kind, stages), Detector(kind, stages)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
    expected = []
    for _step in range(3):
        optimizer.zero_grad()
        loss = plain(images, mask)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    ported = porting.to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), device="sim")

    assert [float(ported(images, mask)) for _step in range(3)] == pytest.approx(expected, rel=1e-5)
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
    layer = Detector("Detr", ["stage4"]).model.model.encoder.layers[0]
    patch = next(patch for patch in PATCHES if ":DetrEncoderLayer." in patch.target)
    changed = edit_function(type(layer).forward, patch.edits)
    x = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(1)) * value

    expected = layer(x, attention_mask=None, spatial_position_embeddings=torch.zeros_like(x))

    found = changed(layer, x, attention_mask=None, spatial_position_embeddings=torch.zeros_like(x))
    torch.testing.assert_close(found, expected, equal_nan=True)
