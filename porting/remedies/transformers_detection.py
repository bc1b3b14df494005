"""Detectors of transformers, whose encoders read on the host whether their activations are finite."""

from __future__ import annotations

from porting.remedies.entries import Edit, Patch

__all__ = ["PATCHES"]

# what is clamped only where something is not finite is chosen on the device
_CHOSEN = (
    Edit("if not torch.isfinite(hidden_states).all():", "if True:"),
    Edit(
        "hidden_states = torch.clamp(hidden_states, min=-clamp_value, max=clamp_value)",
        "hidden_states = torch.where(torch.isfinite(hidden_states).all(), hidden_states, "
        "torch.clamp(hidden_states, min=-clamp_value, max=clamp_value))",
    ),
)

_LAYERS = (
    ("conditional_detr", "ConditionalDetrEncoderLayer"),
    ("d_fine", "DFineEncoderLayer"),
    ("deformable_detr", "DeformableDetrEncoderLayer"),
    ("detr", "DetrEncoderLayer"),
    ("grounding_dino", "GroundingDinoDeformableLayer"),
    ("mask2former", "Mask2FormerPixelDecoderEncoderLayer"),
    ("mm_grounding_dino", "MMGroundingDinoDeformableLayer"),
    ("omdet_turbo", "OmDetTurboEncoderLayer"),
    ("oneformer", "OneFormerPixelDecoderEncoderLayer"),
    ("rt_detr", "RTDetrEncoderLayer"),
    ("rt_detr_v2", "RTDetrV2EncoderLayer"),
    ("table_transformer", "TableTransformerEncoderLayer"),
)

PATCHES = tuple(
    Patch(f"transformers.models.{model}.modeling_{model}:{layer}.forward", edits=_CHOSEN) for model, layer in _LAYERS
)
