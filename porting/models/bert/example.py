"""Random sentences with padding, and the labels of the head.

B = sentences, T = tokens of a sentence.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import BertConfig
from .loss import IGNORED

__all__ = ["example_batch"]


def example_batch(config: BertConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
    """Make random tokens_BT, types_BT, a mask_BT that is 0 at padding, and labels: labels_BT of words, or classes_B.

    About one token in seven has a label, the first of each sentence among them; the others' are ignored.

    >>> from porting.models.bert import VARIANTS
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
