"""Small detectors of transformers, and images for them."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import torch
from torch import nn

_SMALL: Dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "num_queries": 5,
    "num_labels": 3,
    "position_embedding_type": "learned",
    "dropout": 0.0,
    "disable_custom_kernels": True,
}


class Detector(nn.Module):
    """A small detector with the mean square of what it finds as its loss: its own matches boxes on the host."""

    def __init__(self, kind: str, stages: Sequence[str]) -> None:
        super().__init__()
        import transformers

        backbone = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=list(stages)
        )
        config = getattr(transformers, f"{kind}Config")(
            backbone_config=backbone, backbone=None, use_timm_backbone=False, use_pretrained_backbone=False, **_SMALL
        )
        self.model = getattr(transformers, f"{kind}ForObjectDetection")(config)

    def forward(self, images: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found = self.model(pixel_values=images, pixel_mask=mask)
        return found.logits.pow(2).mean() + found.pred_boxes.pow(2).mean()


def make_detector(kind: str, stages: Sequence[str]) -> Detector:
    """Make a detector, the same each time: "DeformableDetr" or "Detr", on some stages of its backbone."""
    torch.manual_seed(0)
    return Detector(kind, stages)


def make_images() -> Dict[str, torch.Tensor]:
    """Make the batch, the same each time."""
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    return {"images": images, "mask": torch.ones(2, 64, 64, dtype=torch.int64)}


def train_plainly(model: nn.Module, batch: Dict[str, torch.Tensor]) -> List[float]:
    """Train three steps on the CPU."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _step in range(3):
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
