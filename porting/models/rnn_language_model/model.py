"""The language model: an embedding, LSTM layers one after the other, and a linear layer, with Dropout before each.

The state is an argument and a result, because a compiled graph keeps nothing from one call to the next: whoever calls
hands the state of one window of text to the next, and the gradient stops there by itself. Its first dimension is the
texts', like that of all other inputs, so that a device may cut a batch into micro-batches.

B = texts, T = tokens of a window, L = layers, H = hidden units, V = size of the vocabulary.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, RNNLanguageModelConfig

__all__ = ["RNNLanguageModel", "build"]


def build(variant: str = DEFAULT, **changes: Any) -> RNNLanguageModel:
    """Make a language model; `changes` are fields of `RNNLanguageModelConfig`.

    >>> build("small", width=8).first_state(3)[0].shape
    torch.Size([3, 2, 8])
    """
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
