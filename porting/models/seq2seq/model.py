"""The translator: embeddings, two stacks of LSTMs, and a linear layer.

The encoder reads the source; the decoder starts with the encoder's state. In training it is given the target, shifted
by one token, and scores all of its tokens at once. Without a target it writes one, always the likeliest token, for a
fixed number of steps: a compiled graph cannot stop when the sentence ends, so what comes after `end` is cut off later.

B = sentences, S and T = tokens of a source and of a target, L = layers, H = hidden units, V = size of the target's
vocabulary.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, Seq2SeqConfig

__all__ = ["Seq2Seq", "build"]

State = Tuple[torch.Tensor, torch.Tensor]
"""The hidden units and the cells of a layer, (1, B, H) each, as torch's LSTM has them."""


def build(variant: str = DEFAULT, **changes: Any) -> Seq2Seq:
    """Make a translator; `changes` are fields of `Seq2SeqConfig`.

    >>> build("small")(torch.full((3, 8), 4)).shape
    torch.Size([3, 9])
    """
    return Seq2Seq(configure(VARIANTS, variant, changes))


class Seq2Seq(nn.Module):
    """sources_BS, targets_BT -> logits_BTV; sources_BS alone -> tokens_BT, the likeliest ones, T = `max_length`.

    Padding behind the end of a source changes nothing: the state stands still there.

    >>> model = build("small")
    >>> model(torch.full((3, 8), 4), torch.full((3, 5), 1)).shape
    torch.Size([3, 5, 16])
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        """Make both stacks and the layer that scores tokens."""
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.source_vocabulary, config.width)
        self.target_embedding = nn.Embedding(config.target_vocabulary, config.width)
        self.encoder = nn.ModuleList(_layers(config))
        self.decoder = nn.ModuleList(_layers(config))
        self.output = nn.Linear(config.width, config.target_vocabulary)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, sources: torch.Tensor, targets: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Score the tokens that follow each of the target's, or write a target."""
        states = self.encode(sources)
        if targets is None:
            return self._write(states, sources.new_full((sources.shape[0], 1), self.config.end))
        return self.decode(targets, states)[0]

    def encode(self, sources: torch.Tensor) -> List[State]:
        """Read sources_BS and return the state of each layer after the last token that is no padding."""
        is_word = (sources != self.config.padding).unsqueeze(2)
        x, states = self.source_embedding(sources), []
        for number, layer in enumerate(self.encoder):
            x, state = _read(layer, self.dropout(x) if number else x, is_word)
            states.append(state)
        return states

    def decode(self, targets: torch.Tensor, states: List[State]) -> Tuple[torch.Tensor, List[State]]:
        """Score what follows each of targets_BT: logits_BTV, and the state of each layer after the last token."""
        x, after = self.target_embedding(targets), []
        for number, (layer, state) in enumerate(zip(self.decoder, states)):
            x, state = layer(self.dropout(x) if number else x, state)
            after.append(state)
        return self.output(x), after

    def _write(self, states: List[State], token: torch.Tensor) -> torch.Tensor:
        """Write `max_length` tokens, each the likeliest after those before it; the first follows token_B1."""
        written = []
        for _place in range(self.config.max_length):
            logits, states = self.decode(token, states)
            token = logits.argmax(dim=2)
            written.append(token)
        return torch.cat(written, dim=1)


def _layers(config: Seq2SeqConfig) -> List[nn.LSTM]:
    """Make LSTMs of one layer each: the device has no others."""
    return [nn.LSTM(config.width, config.width, batch_first=True) for _ in range(config.num_layers)]


def _read(layer: nn.Module, x: torch.Tensor, is_word: torch.Tensor) -> Tuple[torch.Tensor, State]:
    """Run `layer` over x_BSH place by place, and keep its state where is_word_BS1 says that there is padding."""
    hidden = cell = x.new_zeros(1, x.shape[0], x.shape[2])
    outputs = []
    for word, is_real in zip(x.unbind(1), is_word.unbind(1)):
        _output, (new_hidden, new_cell) = layer(word.unsqueeze(1), (hidden, cell))
        hidden, cell = torch.where(is_real, new_hidden, hidden), torch.where(is_real, new_cell, cell)
        outputs.append(hidden[0])
    return torch.stack(outputs, dim=1), (hidden, cell)
