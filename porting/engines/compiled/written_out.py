"""Operators written out for a compiler: as others that take less time than torch's kernel or a library's function.

**The gradient of attention in half precision.** Torch's kernel for the processor takes it in bfloat16 three times as
long as in float32. Written out it multiplies the same matrices by the processor's bfloat16 instructions. The forward
pass keeps torch's kernel, which also leaves the normaliser of each row; so the probabilities are
p = exp(s - logsumexp(s)), and with the gradient g of the output o = p v (Dao, FlashAttention-2, arXiv 2307.08691,
section 3.1.2):

    dv = p' g,   dp = g v',   ds = p * (dp - rowsum(g * o)),   dq = ds k * scale,   dk = ds' q * scale

Query, gradient and output are [batch, heads, queries, size of a head], key and value have keys in place of queries, and
logsumexp lacks the size.

**GELU.** The functions that compilers call, erf and tanh, take longer than arithmetic. erf(x) = x p(x^2) / q(x^2) with
the coefficients of Eigen and XLA (`ErfImpl32`) is exact to a few units in the last place of single precision, up to the
x from which on it is 1 in that precision. With cdf(x) = (1 + erf(x / sqrt 2)) / 2 and the density of the normal
distribution, pdf(x) = exp(-x^2 / 2) / sqrt(2 pi), GELU (Hendrycks and Gimpel, arXiv 1606.08415) and its derivative are

    gelu(x) = x cdf(x),   gelu'(x) = cdf(x) + x pdf(x)

The approximation by tanh has cdf(x) = (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3). That is the logistic
function s(2 u), and pdf(x) = 2 u' s(2 u) (1 - s(2 u)) its derivative.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

import torch

from ...torch_insides.operators import ATTENTION_GRADIENT

__all__ = ["WRITTEN_OUT", "compute_attention_gradient", "compute_erf", "compute_gelu", "compute_gelu_gradient"]

_HALVES = (torch.bfloat16, torch.float16)

# The matrix of all scores is kept for a while; for long sequences it would be most of the memory.
_MOST_SCORES_PER_VALUE = 16


def compute_attention_gradient(
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
        # torch aligns a causal mask at the first query and the first key
        queries, keys = (torch.arange(size, device=scores.device) for size in scores.shape[-2:])
        scores = torch.where(keys <= queries.unsqueeze(1), scores, -math.inf)
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    grad_value = torch.matmul(weights.to(query.dtype).transpose(-2, -1), grad_out)
    grad_weights = torch.matmul(grad_out, value.transpose(-2, -1)).float()
    # The sum over keys of p * dp, by the output instead of another product: o = p v.
    of_row = (grad_out.float() * out.float()).sum(-1, keepdim=True)
    grad_scores = (weights * (grad_weights - of_row) * factor).to(query.dtype)
    return torch.matmul(grad_scores, key), torch.matmul(grad_scores.transpose(-2, -1), query), grad_value


# -- GELU --------------------------------------------------------------------------------------------------------------

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_LINEAR, _CUBIC = math.sqrt(2.0 / math.pi), 0.044715
# erf of it is nearer to 1 than to the number below
_ONE_FROM = 3.832506856900711
_NUMERATOR = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_DENOMINATOR = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def compute_erf(x: torch.Tensor) -> torch.Tensor:
    """Return the error function of a float32 tensor of any shape.

    >>> compute_erf(torch.tensor([0.0, 1.0, 9.0]))
    tensor([0.0000, 0.8427, 1.0000])
    """
    square = x * x
    # Additions, products and one division: compilers make vectors of these, and calls of functions of erf and tanh.
    quotient = x * _evaluate_polynomial(square, _NUMERATOR) / _evaluate_polynomial(square, _DENOMINATOR)
    # an exact 1, because GELU multiplies what is left of it by x
    return torch.where(x.abs() < _ONE_FROM, quotient, torch.sign(x))


def _evaluate_polynomial(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """Evaluate a polynomial by Horner's rule; the coefficient of the highest power comes first."""
    value = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        value = value * x + coefficient
    return value


def compute_gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """Return the GELU of a tensor, exact or by tanh; NotImplemented in double precision."""
    if x.dtype not in _TYPES:
        return NotImplemented
    single = x.float()
    cdf = _compute_cdf(single) if approximate == "none" else torch.sigmoid(_compute_twice_u(single))
    return (single * cdf).to(x.dtype)


def compute_gelu_gradient(grad_out: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """Return the gradient of `x` by that of its GELU; NotImplemented in double precision."""
    if x.dtype not in _TYPES:
        return NotImplemented
    single = x.float()
    if approximate == "none":
        cdf, pdf = _compute_cdf(single), torch.exp(single * single * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
    else:
        cdf = torch.sigmoid(_compute_twice_u(single))
        pdf = (single * single * (3.0 * _CUBIC) + 1.0) * (2.0 * _LINEAR) * (cdf * (1.0 - cdf))
    return (grad_out.float() * (cdf + single * pdf)).to(x.dtype)


def _compute_cdf(x: torch.Tensor) -> torch.Tensor:
    return compute_erf(x * math.sqrt(0.5)) * 0.5 + 0.5


def _compute_twice_u(x: torch.Tensor) -> torch.Tensor:
    return (x + x * x * x * _CUBIC) * (2.0 * _LINEAR)


WRITTEN_OUT: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        ATTENTION_GRADIENT: compute_attention_gradient,
        torch.ops.aten.gelu.default: compute_gelu,
        torch.ops.aten.gelu_backward.default: compute_gelu_gradient,
    }
)
"""The operators that `make_fx` is to decompose, and into what."""
