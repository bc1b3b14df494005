"""Compute the attention of Longformer and LED with all scores at once: only the device knows the global positions.

The remedy `global-attention` has these patches. B = samples, T = positions, H = heads, D = features of a head.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Optional, Tuple

import torch

from porting.remedies.entries import Edit, Patch

__all__ = ["PATCHES", "attend"]


def attend(
    original: Callable[..., Any],
    self: Any,
    hidden_states: torch.Tensor,
    *,
    attention_mask: torch.Tensor,
    is_index_masked: torch.Tensor,
    is_index_global_attn: torch.Tensor,
    is_global_attn: Optional[bool] = None,
    **others: Any,
) -> Any:
    """Compute what `LongformerSelfAttention.forward` does, with a mask in the place of windows and lists of positions.

    A position sees those within its window that are neither masked nor global, and all global ones. A global position
    sees all that are not masked, by projections of its own.
    """
    # head masks and returned weights, where there are any, are for the library's own code
    if any(value is not None and value is not False for value in others.values()):
        masks = (attention_mask, is_index_masked, is_index_global_attn)
        names = ("attention_mask", "is_index_masked", "is_index_global_attn")
        return original(self, hidden_states, **dict(zip(names, masks)), is_global_attn=is_global_attn, **others)
    length = hidden_states.shape[1]
    positions = torch.arange(length, device=hidden_states.device)
    is_near = (positions.unsqueeze(0) - positions.unsqueeze(1)).abs() <= self.one_sided_attn_window_size
    is_plain = (attention_mask == 0).unsqueeze(1)
    is_seen = (is_near.unsqueeze(0) & is_plain) | is_index_global_attn.unsqueeze(1)
    local = _attend(self, hidden_states, is_seen.unsqueeze(1), (self.query, self.key, self.value))
    # a masked position gives nothing, not even where all that it sees is masked
    local = local.masked_fill(is_index_masked[:, :, None], 0.0)
    is_not_masked = ~is_index_masked[:, None, None, :]
    own = (self.query_global, self.key_global, self.value_global)
    everywhere = _attend(self, hidden_states, is_not_masked, own)
    return (torch.where(is_index_global_attn.unsqueeze(-1), everywhere, local),)


def _attend(
    self: Any, hidden_states: torch.Tensor, is_seen: torch.Tensor, projections: Tuple[Any, Any, Any]
) -> torch.Tensor:
    queries_BHTD, keys_BHTD, values_BHTD = (  # noqa: N806
        projection(hidden_states).view(*hidden_states.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
        for projection in projections
    )
    scores = torch.matmul(queries_BHTD / math.sqrt(self.head_dim), keys_BHTD.transpose(-1, -2))
    scores = scores.masked_fill(~is_seen, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)
    weights = torch.nn.functional.dropout(weights, p=self.dropout, training=self.training)
    return torch.matmul(weights, values_BHTD).transpose(1, 2).reshape(hidden_states.shape)


def _find_question_end(_original: Callable[..., Any], input_ids: torch.Tensor, sep_token_id: int) -> torch.Tensor:
    """Find the first separator of each sample; that there are three is for the tokenizer to see to."""
    return (input_ids == sep_token_id).to(torch.int32).argmax(dim=1)


_ANY_GLOBAL = Edit("is_index_global_attn.flatten().any().item()", "True")

_LONGFORMER = "transformers.models.longformer.modeling_longformer"
_LED = "transformers.models.led.modeling_led"

PATCHES = (
    Patch(f"{_LONGFORMER}:LongformerEncoder.forward", edits=(_ANY_GLOBAL,)),
    Patch(f"{_LONGFORMER}:LongformerSelfAttention.forward", replacement=attend),
    Patch(f"{_LONGFORMER}:_get_question_end_index", replacement=_find_question_end),
    Patch(f"{_LED}:LEDEncoder.forward", edits=(_ANY_GLOBAL,)),
    Patch(f"{_LED}:LEDEncoderSelfAttention.forward", replacement=attend),
)
