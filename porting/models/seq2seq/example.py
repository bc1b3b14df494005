"""Random sentences with random translations, both padded.

B = sentences, S and T = tokens of a source and of a target.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import Seq2SeqConfig
from .loss import IGNORED

__all__ = ["example_batch"]


def example_batch(config: Seq2SeqConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
    """Make random sources_BS, targets_BT as the decoder sees them, and labels_BT: what it is to write next.

    >>> from porting.models.seq2seq import VARIANTS
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
