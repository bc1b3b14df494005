"""The gradient of attention in half precision, written out as matrix products that are several times as fast.

Torch's kernel for the processor takes the gradient of attention in bfloat16 three times as long as in float32. Written
out it multiplies the same matrices by the processor's bfloat16 instructions. The forward pass keeps torch's kernel,
which also leaves the normaliser of each row; so the probabilities are p = exp(s - logsumexp(s)), and with the gradient
g of the output o = p v (Dao, FlashAttention-2, arXiv 2307.08691, section 3.1.2):

    dv = p' g,   dp = g v',   ds = p * (dp - rowsum(g * o)),   dq = ds k * scale,   dk = ds' q * scale

Query, gradient and output are [batch, heads, queries, size of a head], key and value have keys in place of queries, and
logsumexp lacks the size.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional, Tuple

import torch

__all__ = ["ATTENTION_GRADIENT", "attention_gradient"]

_HALVES = (torch.bfloat16, torch.float16)

# The matrix of all scores is kept for a while; for long sequences it would be most of the memory.
_MOST_SCORES_PER_VALUE = 16


def attention_gradient(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Optional[torch.Tensor] = None,
    scale: Optional[float] = None,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value; NotImplemented where torch's own kernel is to be taken.

    That is for single precision, with dropout, and where the scores would need far more memory than the values.
    """
    if query.dtype not in _HALVES or dropout_p or key.shape[-2] > _MOST_SCORES_PER_VALUE * key.shape[-1]:
        return NotImplemented
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    # The products are in half precision, everything between them in single: exp of a rounded score is off by more than
    # a product of rounded factors.
    scores = torch.matmul(query, key.transpose(-2, -1)).float() * factor
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        scores = torch.where(_is_past(scores), scores, -math.inf)
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    grad_value = torch.matmul(weights.to(query.dtype).transpose(-2, -1), grad_out)
    grad_weights = torch.matmul(grad_out, value.transpose(-2, -1)).float()
    # The sum over keys of p * dp, by the output instead of another product: o = p v.
    of_row = (grad_out.float() * out.float()).sum(-1, keepdim=True)
    grad_scores = (weights * (grad_weights - of_row) * factor).to(query.dtype)
    return torch.matmul(grad_scores, key), torch.matmul(grad_scores.transpose(-2, -1), query), grad_value


def _is_past(scores: torch.Tensor) -> torch.Tensor:
    queries = torch.arange(scores.shape[-2], device=scores.device).unsqueeze(1)
    # torch aligns a causal mask at the first query and the first key
    return torch.arange(scores.shape[-1], device=scores.device) <= queries


ATTENTION_GRADIENT: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_gradient}
)
"""The operator that `make_fx` is to decompose, and into what."""
