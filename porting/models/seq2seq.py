"""Define a translation model: one stack of LSTMs reads the source, another one writes the target.

The encoder reads the source; the decoder starts with the encoder's state. In training it is given the target, shifted
by one token, and scores all of its tokens at once. Without a target it writes one, always the likeliest token, for a
fixed number of steps: a compiled graph cannot stop when the sentence ends, so what comes after `end` is cut off later.

B = sentences, S and T = tokens of a source and of a target, L = layers, H = hidden units, V = size of the target's
vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.models.family import IGNORED, check_positive, configure
from porting.models.family import token_loss as loss

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "Seq2Seq",
    "Seq2SeqConfig",
    "bleu",
    "build",
    "cut_at_end",
    "example_batch",
    "loss",
]


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The sizes of a translation model.

    `max_length` is the number of tokens that it writes without a target; the two lengths of an example batch are
    `source_length` and `max_length`. `padding` and `end` are token numbers; a target starts with `end`, too.
    """

    source_vocabulary: int = 40_000
    target_vocabulary: int = 40_000
    width: int = 1024
    num_layers: int = 3
    dropout: float = 0.1
    source_length: int = 50
    max_length: int = 50
    padding: int = 0
    end: int = 1

    def __post_init__(self) -> None:
        check_positive(self, zero_allowed=("padding", "end"))


DEFAULT = "wmt15"

VARIANTS: Mapping[str, Seq2SeqConfig] = MappingProxyType(
    {
        "wmt15": Seq2SeqConfig(),
        "small": Seq2SeqConfig(
            source_vocabulary=16, target_vocabulary=16, width=64, num_layers=2, source_length=8, max_length=9
        ),
    }
)
"""By name: the one of Chainer's example for French and English, and one that trains in seconds."""

State = Tuple[torch.Tensor, torch.Tensor]
"""The hidden units and the cells of a layer, (1, B, H) each, as torch's LSTM has them."""


def build(variant: str = DEFAULT, **changes: Any) -> Seq2Seq:
    """Make a translator; `changes` are fields of `Seq2SeqConfig`."""
    return Seq2Seq(configure(VARIANTS, variant, changes))


class Seq2Seq(nn.Module):
    """sources_BS, targets_BT -> logits_BTV; sources_BS alone -> tokens_BT, the likeliest ones, T = `max_length`.

    Padding after the end of a source has no effect: the state does not change there.

    >>> model = build("small")
    >>> model(torch.full((3, 8), 4), torch.full((3, 5), 1)).shape
    torch.Size([3, 5, 16])
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.source_vocabulary, config.width)
        self.target_embedding = nn.Embedding(config.target_vocabulary, config.width)
        self.encoder = nn.ModuleList(_make_layers(config))
        self.decoder = nn.ModuleList(_make_layers(config))
        self.output = nn.Linear(config.width, config.target_vocabulary)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, sources: torch.Tensor, targets: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Score the tokens that follow each of the target's, or write a target."""
        states = self.encode(sources)
        if targets is None:
            return self._write_tokens(states, sources.new_full((sources.shape[0], 1), self.config.end))
        return self.decode(targets, states)[0]

    def encode(self, sources: torch.Tensor) -> List[State]:
        """Read sources_BS and return the state of each layer after the last token that is no padding."""
        is_word = (sources != self.config.padding).unsqueeze(2)
        x, states = self.source_embedding(sources), []
        for number, layer in enumerate(self.encoder):
            x, state = _run_layer(layer, self.dropout(x) if number else x, is_word)
            states.append(state)
        return states

    def decode(self, targets: torch.Tensor, states: List[State]) -> Tuple[torch.Tensor, List[State]]:
        """Score the token after each of targets_BT: logits_BTV, and the state of each layer after the last token."""
        x, after = self.target_embedding(targets), []
        for number, (layer, state) in enumerate(zip(self.decoder, states)):
            x, state = layer(self.dropout(x) if number else x, state)
            after.append(state)
        return self.output(x), after

    def _write_tokens(self, states: List[State], token: torch.Tensor) -> torch.Tensor:
        """Write `max_length` tokens, each the likeliest after those before it; the first follows token_B1."""
        written = []
        for _place in range(self.config.max_length):
            logits, states = self.decode(token, states)
            token = logits.argmax(dim=2)
            written.append(token)
        return torch.cat(written, dim=1)


def example_batch(config: Seq2SeqConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
    """Make random sources_BS, targets_BT as the decoder sees them, and labels_BT, the tokens that follow.

    >>> [tuple(tensor.shape) for tensor in example_batch(VARIANTS["small"], batch_size=4)]
    [(4, 8), (4, 9), (4, 9)]
    """
    generator = torch.Generator().manual_seed(seed)
    first_word = max(config.padding, config.end) + 1

    def words(vocabulary: int, length: int) -> Tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(first_word, vocabulary, (batch_size, length), generator=generator)
        lengths = torch.randint(1, length + 1, (batch_size, 1), generator=generator)
        return tokens, torch.arange(length) < lengths

    sources, is_word = words(config.source_vocabulary, config.source_length)
    sources = sources.where(is_word, torch.tensor(config.padding))
    written, is_word = words(config.target_vocabulary, config.max_length - 1)
    ends = torch.full((batch_size, 1), config.end)
    targets = torch.cat([ends, written.where(is_word, torch.tensor(config.padding))], dim=1)
    labels = torch.cat([written.where(is_word, torch.tensor(IGNORED)), torch.full_like(ends, IGNORED)], dim=1)
    return sources, targets, labels.scatter(1, is_word.sum(dim=1, keepdim=True), config.end)


def bleu(candidates: Sequence[Sequence[Any]], references: Sequence[Sequence[Any]], *, max_order: int = 4) -> float:
    """Compute BLEU of a corpus, from 0 to 1: one reference for each candidate, no smoothing (Papineni et al., 2002).

    It is the geometric mean over n = 1..4 of the share of n-grams that stand in the reference, each counted at most as
    often as there, over all sentences together; candidates that are shorter than their references lose more. An order
    that no candidate is long enough for is left out, so that short sentences can be perfect.

    >>> bleu([["the", "cat", "sat", "down"]], [["the", "cat", "sat", "down"]])
    1.0
    >>> round(bleu([["the", "cat", "sat", "here"]], [["the", "cat", "sat", "down"]], max_order=2), 4)
    0.7071
    """
    if len(candidates) != len(references):
        raise ValueError(f"{len(candidates)} candidates for {len(references)} references")
    logarithms = []
    for order in range(1, max_order + 1):
        num_common = num_all = 0
        for candidate, reference in zip(candidates, references):
            found = _count_ngrams(candidate, order)
            num_common += sum((found & _count_ngrams(reference, order)).values())
            num_all += sum(found.values())
        if num_all and not num_common:
            return 0.0
        if num_all:
            logarithms.append(math.log(num_common / num_all))
    length, wanted = sum(map(len, candidates)), sum(map(len, references))
    if not logarithms:
        return 0.0
    return math.exp(min(0.0, 1 - wanted / length) + sum(logarithms) / len(logarithms))


def cut_at_end(tokens: Any, *, end: int) -> List[List[int]]:
    """Turn tokens_BT, as a tensor or lists, into sentences: the tokens before the first `end` of each row.

    >>> cut_at_end([[5, 6, 1, 9], [7, 1, 1, 1]], end=1)
    [[5, 6], [7]]
    """
    rows = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    return [row[: row.index(end)] if end in row else list(row) for row in rows]


def _make_layers(config: Seq2SeqConfig) -> List[nn.LSTM]:
    """Make LSTMs of one layer each: the device has no others."""
    return [nn.LSTM(config.width, config.width, batch_first=True) for _ in range(config.num_layers)]


def _run_layer(layer: nn.Module, x: torch.Tensor, is_word: torch.Tensor) -> Tuple[torch.Tensor, State]:
    """Run `layer` over x_BSH place by place, and keep its state where is_word_BS1 says that there is padding."""
    hidden = cell = x.new_zeros(1, x.shape[0], x.shape[2])
    outputs = []
    for word, is_real in zip(x.unbind(1), is_word.unbind(1)):
        _output, (new_hidden, new_cell) = layer(word.unsqueeze(1), (hidden, cell))
        hidden, cell = torch.where(is_real, new_hidden, hidden), torch.where(is_real, new_cell, cell)
        outputs.append(hidden[0])
    return torch.stack(outputs, dim=1), (hidden, cell)


def _count_ngrams(tokens: Sequence[Any], order: int) -> Counter[Any]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))
