"""Define an encoder-only transformer in the manner of BERT, with a head for words or for classes.

B = sentences, T = tokens of a sentence, D = width, V = size of the vocabulary, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping, Optional, Tuple

import torch
from torch import nn

from porting.models.family import IGNORED, check_positive, configure, draw_weights
from porting.models.family import token_loss as loss

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "Bert",
    "BertClassifier",
    "BertConfig",
    "BertMaskedLM",
    "build",
    "example_batch",
    "loss",
]


@dataclass(frozen=True)
class BertConfig:
    """The sizes of the transformer; the defaults are BERT base.

    `head` is "masked_lm", which names the words that were masked out, or "classification", into `num_classes`. `length`
    is how many positions there are, and that of an example batch; `num_types` counts the kinds of tokens: those of a
    first and of a second sentence.
    """

    vocabulary: int = 30_522
    width: int = 768
    num_layers: int = 12
    num_heads: int = 12
    inner_width: int = 3072
    length: int = 512
    num_types: int = 2
    dropout: float = 0.1
    norm_epsilon: float = 1e-12
    head: str = "masked_lm"
    num_classes: int = 2

    def __post_init__(self) -> None:
        check_positive(self)
        if self.width % self.num_heads:
            raise ValueError(f"a width of {self.width} does not divide into {self.num_heads} heads")
        if self.head not in ("masked_lm", "classification"):
            raise ValueError(f"there is no head {self.head!r}; there are 'masked_lm', 'classification'")


DEFAULT = "base"

VARIANTS: Mapping[str, BertConfig] = MappingProxyType(
    {
        "base": BertConfig(),
        "mini": BertConfig(width=256, num_layers=4, num_heads=4, inner_width=1024),
        "tiny": BertConfig(width=128, num_layers=2, num_heads=2, inner_width=512),
        "toy": BertConfig(vocabulary=40, width=32, num_layers=2, num_heads=2, inner_width=64, length=12),
    }
)
"""By name: BERT base and two of its small published sizes, and one that trains in seconds."""


def build(variant: str = DEFAULT, **changes: Any) -> nn.Module:
    """Make a transformer with the head that the configuration names; `changes` are fields of `BertConfig`.

    >>> type(build("toy")).__name__, type(build("toy", head="classification")).__name__
    ('BertMaskedLM', 'BertClassifier')
    """
    config = configure(VARIANTS, variant, changes)
    return BertClassifier(config) if config.head == "classification" else BertMaskedLM(config)


class BertMaskedLM(nn.Module):
    """tokens_BT, types_BT, mask_BT -> logits_BTV; the scores are products with the word embedding, which it shares."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = Bert(config)
        self.transform = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        draw_weights(self, lambda _layer: 0.02)

    def forward(
        self, tokens: torch.Tensor, types: Optional[torch.Tensor] = None, mask: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """Score the words that may stand at each place."""
        x = self.norm(nn.functional.gelu(self.transform(self.bert(tokens, types, mask))))
        return nn.functional.linear(x, self.bert.embeddings.words.weight, self.bias)


class BertClassifier(nn.Module):
    """tokens_BT, types_BT, mask_BT -> logits_BC, from the pooler's output for the first token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = Bert(config)
        self.pooler = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.width, config.num_classes)
        draw_weights(self, lambda _layer: 0.02)

    def forward(
        self, tokens: torch.Tensor, types: Optional[torch.Tensor] = None, mask: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """Score the classes."""
        first = self.bert(tokens, types, mask)[:, 0]
        return self.classifier(self.dropout(torch.tanh(self.pooler(first))))


class Bert(nn.Module):
    """tokens_BT, types_BT, mask_BT -> hidden_BTD. Without types all tokens are of the first, without a mask all count.

    >>> Bert(VARIANTS["toy"])(torch.zeros(2, 5, dtype=torch.int64)).shape
    torch.Size([2, 5, 32])
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = _Embeddings(config)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.num_layers))
        draw_weights(self, lambda _layer: 0.02)

    def forward(
        self, tokens: torch.Tensor, types: Optional[torch.Tensor] = None, mask: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """Let every token see all others that the mask has at 1."""
        x: torch.Tensor = self.embeddings(tokens, types)
        # for all heads and all tokens that look
        is_seen = None if mask is None else (mask != 0)[:, None, None, :]
        for block in self.blocks:
            x = block(x, is_seen)
        return x


def example_batch(config: BertConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
    """Make random tokens_BT, types_BT, a mask_BT that is 0 at padding, and labels: labels_BT of words, or classes_B.

    About one token in seven has a label, the first of each sentence among them; the others' are ignored.

    >>> [tuple(tensor.shape) for tensor in example_batch(VARIANTS["toy"], batch_size=2)]
    [(2, 12), (2, 12), (2, 12), (2, 12)]
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, config.length)
    tokens = torch.randint(config.vocabulary, shape, generator=generator)
    lengths = torch.randint(1, config.length + 1, (batch_size, 1), generator=generator)
    places = torch.arange(config.length)
    mask = (places < lengths).to(torch.int64)
    types = (places >= lengths // 2).to(torch.int64) * mask * (config.num_types > 1)
    if config.head == "classification":
        return tokens, types, mask, torch.randint(config.num_classes, (batch_size,), generator=generator)
    is_scored = (torch.rand(shape, generator=generator) < 1 / 7) & (mask == 1) | (places == 0)
    return tokens, types, mask, tokens.where(is_scored, torch.tensor(IGNORED))


class _Embeddings(nn.Module):
    """The sum of three embeddings: of the token, of its position and of its sentence."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.length, config.width)
        self.types = nn.Embedding(config.num_types, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: torch.Tensor, types: Optional[torch.Tensor]) -> torch.Tensor:
        of_type = self.types.weight[0] if types is None else self.types(types)
        x = self.words(tokens) + of_type + self.positions.weight[: tokens.shape[1]]
        return self.dropout(self.norm(x))


class _Block(nn.Module):
    """Self-attention and a perceptron, each added to its input and normalised afterwards."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.project = nn.Linear(config.width, config.width)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.grow = nn.Linear(config.width, config.inner_width)
        self.shrink = nn.Linear(config.inner_width, config.width)
        self.perceptron_norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, is_seen: Optional[torch.Tensor]) -> torch.Tensor:
        x = self.attention_norm(x + self.dropout(self.project(self._compute_attention(x, is_seen))))
        hidden = nn.functional.gelu(self.grow(x))
        return self.perceptron_norm(x + self.dropout(self.shrink(hidden)))

    def _compute_attention(self, x: torch.Tensor, is_seen: Optional[torch.Tensor]) -> torch.Tensor:
        heads_of = (*x.shape[:2], self.num_heads, -1)
        query, key, value = (part(x).view(heads_of).transpose(1, 2) for part in (self.query, self.key, self.value))
        dropout = self.dropout.p if self.training else 0.0
        heads = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=is_seen, dropout_p=dropout)
        return heads.transpose(1, 2).flatten(2)
