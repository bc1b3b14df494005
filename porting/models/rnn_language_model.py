"""Define a recurrent language model of two LSTM layers; their state goes in and out, for truncated backpropagation.

The state is an argument and a result, because a compiled graph keeps nothing from one call to the next: the caller
passes the state of one window of text to the next, and the gradient stops there by itself. Its first dimension is the
texts', like that of all other inputs, so that a device may cut a batch into micro-batches.

B = texts, T = tokens of a window, L = layers, H = hidden units, V = size of the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, List, Mapping, Sequence, Tuple

import torch
from torch import nn

from porting.models.family import check_positive, configure, example_text, token_loss

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "RNNLanguageModel",
    "RNNLanguageModelConfig",
    "build",
    "example_batch",
    "loss",
    "perplexity",
]


@dataclass(frozen=True)
class RNNLanguageModelConfig:
    """The sizes of the language model; a gradient goes back `length` tokens."""

    vocabulary: int = 10_000
    width: int = 650
    num_layers: int = 2
    length: int = 35
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_positive(self)


DEFAULT = "ptb"

VARIANTS: Mapping[str, RNNLanguageModelConfig] = MappingProxyType(
    {
        "ptb": RNNLanguageModelConfig(),
        "small": RNNLanguageModelConfig(vocabulary=50, width=48, length=16, dropout=0.1),
    }
)
"""By name: the one of Chainer's example for the Penn Treebank, and one that trains in seconds."""


def build(variant: str = DEFAULT, **changes: Any) -> RNNLanguageModel:
    """Make a language model; `changes` are fields of `RNNLanguageModelConfig`."""
    return RNNLanguageModel(configure(VARIANTS, variant, changes))


class RNNLanguageModel(nn.Module):
    """tokens_BT, hidden_BLH, cell_BLH -> logits_BTV, hidden_BLH, cell_BLH.

    >>> model = build("small")
    >>> logits, hidden, cell = model(torch.zeros(3, 5, dtype=torch.int64), *model.first_state(3))
    >>> tuple(logits.shape), tuple(hidden.shape)
    ((3, 5, 50), (3, 2, 48))
    """

    def __init__(self, config: RNNLanguageModelConfig) -> None:
        """Make the layers, with all parameters uniform in -0.1 to 0.1."""
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        # the device has LSTMs of one layer
        layers = (nn.LSTM(config.width, config.width, batch_first=True) for _ in range(config.num_layers))
        self.layers = nn.ModuleList(layers)
        self.output = nn.Linear(config.width, config.vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def first_state(self, num_texts: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return the hidden_BLH and cell_BLH that texts start with: zeros."""
        shape = (num_texts, self.config.num_layers, self.config.width)
        return torch.zeros(shape), torch.zeros(shape)

    def forward(
        self, tokens: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Score each next token, and return the state after the last one."""
        x = self.embedding(tokens)
        states: List[Tuple[torch.Tensor, torch.Tensor]] = []
        for layer, before, kept in zip(self.layers, hidden.unbind(1), cell.unbind(1)):
            # torch's LSTM wants its state with a dimension for layers in front
            x, state = layer(self.dropout(x), (before.unsqueeze(0), kept.unsqueeze(0)))
            states.append(state)
        logits = self.output(self.dropout(x))
        last_hidden, last_cell = (torch.cat([part.transpose(0, 1) for part in parts], dim=1) for parts in zip(*states))
        return logits, last_hidden, last_cell


def example_batch(config: RNNLanguageModelConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
    """Make random tokens_BT, a hidden_BLH and a cell_BLH of zeros, and as labels_BT the tokens that follow each.

    >>> [tuple(tensor.shape) for tensor in example_batch(VARIANTS["small"], batch_size=3)]
    [(3, 16), (3, 2, 48), (3, 2, 48), (3, 16)]
    """
    tokens, labels = example_text(config, batch_size=batch_size, seed=seed)
    state = torch.zeros(batch_size, config.num_layers, config.width)
    return tokens, state, state.clone(), labels


def loss(outputs: Sequence[torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in nats per token of the first output, logits_BTV, with labels_BT; the state has no loss."""
    return token_loss(outputs[0], labels)


def perplexity(nats_per_token: float) -> float:
    """Return between how many equally likely tokens a model with this loss is undecided; infinite beyond floats.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    return math.exp(nats_per_token) if nats_per_token < 700 else math.inf
