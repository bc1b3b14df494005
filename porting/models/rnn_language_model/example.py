"""Random tokens with the state that a text starts with.

B = texts, T = tokens of a window, L = layers, H = hidden units.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import RNNLanguageModelConfig

__all__ = ["example_batch"]


def example_batch(config: RNNLanguageModelConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
    """Make random tokens_BT, a hidden_BLH and a cell_BLH of zeros, and as labels_BT the tokens that follow each.

    >>> from porting.models.rnn_language_model import VARIANTS
    >>> [tuple(tensor.shape) for tensor in example_batch(VARIANTS["small"], batch_size=3)]
    [(3, 16), (3, 2, 48), (3, 2, 48), (3, 16)]
    """
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(config.vocabulary, (batch_size, config.length + 1), generator=generator)
    state = torch.zeros(batch_size, config.num_layers, config.width)
    return text[:, :-1].contiguous(), state, state.clone(), text[:, 1:].contiguous()
