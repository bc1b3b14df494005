"""Define sequence classifiers with a long short-term memory: torch's own layer, or a cell unrolled by hand.

B = sequences, T = places of a sequence, F = features, H = hidden units, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping, Tuple

import torch
from torch import nn

from porting.models.family import check_positive, configure, loss

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "LSTMClassifier",
    "RecurrentConfig",
    "UnrolledLSTMClassifier",
    "build",
    "example_batch",
    "loss",
]


@dataclass(frozen=True)
class RecurrentConfig:
    """The sizes of a recurrent classifier, and whether its cell is `unrolled` by hand."""

    num_features: int = 64
    hidden: int = 128
    length: int = 32
    num_classes: int = 10
    unrolled: bool = False

    def __post_init__(self) -> None:
        check_positive(self)


DEFAULT = "lstm"

VARIANTS: Mapping[str, RecurrentConfig] = MappingProxyType(
    {"lstm": RecurrentConfig(), "lstm_unrolled": RecurrentConfig(unrolled=True)}
)
"""By name: with `nn.LSTM`, and with a cell that is called once for each place."""


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
        super().__init__()
        self.lstm = nn.LSTM(config.num_features, config.hidden, batch_first=True)
        self.classifier = nn.Linear(config.hidden, config.num_classes)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Classify sequences."""
        outputs, _state = self.lstm(sequences)
        return self.classifier(outputs[:, -1])


class UnrolledLSTMClassifier(nn.Module):
    """sequences_BTF -> logits_BC, with the cell written out in Python and called once for each place.

    With the same weights it computes what `LSTMClassifier` does; this is how cells that are not torch's are written.
    """

    def __init__(self, config: RecurrentConfig) -> None:
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
        return self.classifier(hidden)


def example_batch(config: RecurrentConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random sequences_BTF and labels_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(RecurrentConfig(), batch_size=2)]
    [(2, 32, 64), (2,)]
    """
    generator = torch.Generator().manual_seed(seed)
    sequences = torch.randn((batch_size, config.length, config.num_features), generator=generator)
    return sequences, torch.randint(config.num_classes, (batch_size,), generator=generator)
