"""Let detectors of transformers choose on the device whether their activations are clamped.

Their encoders read on the host whether activations are finite; the remedy `finite-activations` has these patches.
"""

from __future__ import annotations

from porting.remedies.entries import Edit, Patch

__all__ = ["PATCHES", "PATCHES_4"]

# what is clamped only where something is not finite is chosen on the device
_CLAMPED = "torch.clamp(hidden_states, min=-clamp_value, max=clamp_value)"
_CHOSEN = Edit(
    f"hidden_states = {_CLAMPED}",
    f"hidden_states = torch.where(torch.isfinite(hidden_states).all(), hidden_states, {_CLAMPED})",
)
_READS = Edit("if not torch.isfinite(hidden_states).all():", "if True:")
_READS_4 = Edit("if torch.isinf(hidden_states).any() or torch.isnan(hidden_states).any():", "if True:")

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

# those that transformers 4.46 has too
_LAYERS_4 = tuple(
    (model, layer) for model, layer in _LAYERS if model not in ("d_fine", "mm_grounding_dino", "rt_detr_v2")
)


def _patch(model: str, layer: str, reads: Edit) -> Patch:
    return Patch(f"transformers.models.{model}.modeling_{model}:{layer}.forward", edits=(reads, _CHOSEN))


PATCHES = tuple(_patch(model, layer, _READS) for model, layer in _LAYERS)
PATCHES_4 = tuple(_patch(model, layer, _READS_4) for model, layer in _LAYERS_4)
