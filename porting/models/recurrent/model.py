"""The classifiers: torch's layer, and the cell written out.

B = sequences, T = places of a sequence, F = features, H = hidden units, C = classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, RecurrentConfig

__all__ = ["LSTMClassifier", "UnrolledLSTMClassifier", "build"]


def build(variant: str = DEFAULT, **changes: Any) -> nn.Module:
    """Make a classifier; `changes` are fields of `RecurrentConfig`.

    >>> type(build("lstm_unrolled", hidden=3)).__name__
    'UnrolledLSTMClassifier'
    """
    config = configure(VARIANTS, variant, changes)
    return UnrolledLSTMClassifier(config) if config.unrolled else LSTMClassifier(config)


class LSTMClassifier(nn.Module):
    """sequences_BTF -> logits_BC, from the last hidden state of `nn.LSTM`.

    >>> LSTMClassifier(RecurrentConfig())(torch.zeros(2, 32, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(self, config: RecurrentConfig) -> None:
        """Make the layer and the classifier."""
        super().__init__()
        self.lstm = nn.LSTM(config.num_features, config.hidden, batch_first=True)
        self.classifier = nn.Linear(config.hidden, config.num_classes)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Classify sequences."""
        outputs, _state = self.lstm(sequences)
        logits: torch.Tensor = self.classifier(outputs[:, -1])
        return logits


class UnrolledLSTMClassifier(nn.Module):
    """sequences_BTF -> logits_BC, with the cell written out in Python and called once for each place.

    With the same weights it computes what `LSTMClassifier` does; this is how cells that are not torch's are written.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        """Make the cell's two linear maps and the classifier."""
        super().__init__()
        self.hidden = config.hidden
        self.from_input = nn.Linear(config.num_features, 4 * config.hidden)
        self.from_hidden = nn.Linear(config.hidden, 4 * config.hidden)
        self.classifier = nn.Linear(config.hidden, config.num_classes)
        bound = config.hidden**-0.5
        for parameter in [*self.from_input.parameters(), *self.from_hidden.parameters()]:
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Classify sequences."""
        hidden = sequences.new_zeros(sequences.shape[0], self.hidden)
        cell = sequences.new_zeros(sequences.shape[0], self.hidden)
        for features in sequences.unbind(1):
            gates = self.from_input(features) + self.from_hidden(hidden)
            entry, forget, candidate, exit_gate = gates.chunk(4, dim=1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(candidate)
            hidden = torch.sigmoid(exit_gate) * torch.tanh(cell)
        logits: torch.Tensor = self.classifier(hidden)
        return logits
