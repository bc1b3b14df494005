"""Define a decoder-only transformer in the manner of GPT-2: pre-norm blocks, learned positions, tied input and output.

B = sequences, T = tokens of a sequence, D = width, V = size of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping

import torch
from torch import nn

from porting.models.family import check_positive, configure, draw_weights
from porting.models.family import example_text as example_batch
from porting.models.family import token_loss as loss

__all__ = ["DEFAULT", "GPT", "VARIANTS", "GPTConfig", "build", "example_batch", "loss"]


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of the transformer; the defaults are a small one for text as bytes."""

    num_layers: int = 4
    num_heads: int = 4
    width: int = 256
    length: int = 128
    vocabulary: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self)
        if self.width % self.num_heads:
            raise ValueError(f"a width of {self.width} does not divide into {self.num_heads} heads")


DEFAULT = "small"

VARIANTS: Mapping[str, GPTConfig] = MappingProxyType(
    {
        "small": GPTConfig(),
        "gpt2_small": GPTConfig(num_layers=12, num_heads=12, width=768, length=1024, vocabulary=50_257, dropout=0.1),
    }
)
"""By name: a small one for text as bytes, and the smallest published GPT-2."""


def build(variant: str = DEFAULT, **changes: Any) -> GPT:
    """Make a transformer; `changes` are fields of `GPTConfig`."""
    return GPT(configure(VARIANTS, variant, changes))


class GPT(nn.Module):
    """tokens_BT -> logits_BTV, where the logits at a place see the tokens up to it.

    >>> GPT(GPTConfig(num_layers=1, width=8, num_heads=2))(torch.zeros(2, 5, dtype=torch.int64)).shape
    torch.Size([2, 5, 256])
    """

    def __init__(self, config: GPTConfig) -> None:
        """Make embeddings, blocks and the head, which shares the token embedding's weight, initialised as GPT-2."""
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Parameter(torch.zeros(config.length, config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(_Block(config) for _ in range(config.num_layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = _TiedHead()
        nn.init.normal_(self.position_embedding, std=0.02)
        # the more layers add to the residual stream, the smaller is each one's share
        added = {layer for block in self.blocks.children() for layer in (block.project, block.shrink)}
        draw_weights(self, lambda layer: 0.02 / (2 * config.num_layers) ** 0.5 if layer in added else 0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Score each next token."""
        x = self.token_embedding(tokens) + self.position_embedding[: tokens.shape[1]]
        x = self.norm(self.blocks(self.dropout(x)))
        return self.head(x, self.token_embedding.weight)


class _TiedHead(nn.Module):
    """Scores by a weight of another module; it is a module, so that a pipeline can begin a stage at it."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, weight)


class _Block(nn.Module):
    """Causal self-attention and a perceptron, each added to the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.attention_norm = nn.LayerNorm(config.width)
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)
        self.perceptron_norm = nn.LayerNorm(config.width)
        self.grow = nn.Linear(config.width, 4 * config.width)
        self.shrink = nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self._compute_attention(self.attention_norm(x)))
        hidden = nn.functional.gelu(self.grow(self.perceptron_norm(x)), approximate="tanh")
        return x + self.dropout(self.shrink(hidden))

    def _compute_attention(self, x: torch.Tensor) -> torch.Tensor:
        num_sequences, length, width = x.shape
        parts = self.query_key_value(x).view(num_sequences, length, 3, self.num_heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout.p if self.training else 0.0
        heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=dropout)
        return self.project(heads.transpose(1, 2).reshape(num_sequences, length, width))
