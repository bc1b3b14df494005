"""Generate sentences about films that are praise or blame, by a small grammar: labelled text without a download.

B = sentences, T = tokens of a sentence, padding included.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as np
import torch

__all__ = ["PADDING", "VOCABULARY", "make_sentences", "words_of"]

PADDING = 0
"""The token that fills short sentences."""

_SPECIAL = ("[PAD]", "[CLS]", "[SEP]")
_SUBJECTS = ("film", "story", "cast", "music", "ending", "camera", "dialogue", "plot")
_VERBS = ("is", "was", "seems")
_PRAISE = ("good", "great", "clever", "moving", "funny", "superb", "bright", "charming")
_BLAME = ("bad", "dull", "clumsy", "boring", "flat", "awful", "grey", "tiresome")
_OTHERS = ("the", "not", "and", "very")

VOCABULARY: Tuple[str, ...] = (*_SPECIAL, *_OTHERS, *_SUBJECTS, *_VERBS, *_PRAISE, *_BLAME)
"""The words by their tokens: `VOCABULARY[token]`."""

_TOKENS = {word: token for token, word in enumerate(VOCABULARY)}
_MAX_CLAUSES = 2
_CLAUSE_LENGTH = 6


def make_sentences(num_samples: int, *, seed: int, length: int = 16) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Write sentences: tokens_BT and masks_BT (1 for a token, 0 for padding), int64, and labels_B, 1 for praise.

    A sentence has one or two clauses such as "the plot was not very good", which are of one opinion. A quarter of the
    clauses are negated by "not", so that single words do not decide. Equal seeds give equal sentences.

    >>> tokens, masks, labels = make_sentences(2, seed=1)
    >>> tokens.shape, int(masks[0].sum()) < 16
    (torch.Size([2, 16]), True)
    """
    longest = _MAX_CLAUSES * (_CLAUSE_LENGTH + 1) + 1
    if length < longest:
        raise ValueError(f"`length` is {length}; the longest sentence has {longest} tokens")
    draws = np.random.default_rng(seed)
    tokens_bt = np.full((num_samples, length), PADDING, dtype=np.int64)
    labels_b = np.empty(num_samples, dtype=np.int64)
    for row in range(num_samples):
        labels_b[row] = praises = int(draws.integers(2))
        words = ["[CLS]", *_write_clause(bool(praises), draws)]
        if draws.integers(2):
            words += ["and", *_write_clause(bool(praises), draws)]
        words.append("[SEP]")
        tokens_bt[row, : len(words)] = [_TOKENS[word] for word in words]
    tokens = torch.from_numpy(tokens_bt)
    return tokens, (tokens != PADDING).to(torch.int64), torch.from_numpy(labels_b)


def words_of(tokens: torch.Tensor) -> str:
    """Read a sentence, without padding and the tokens that begin and end it.

    >>> words_of(torch.tensor([1, 3, 7, 15, 18, 2, 0, 0]))
    'the film is good'
    """
    return " ".join(VOCABULARY[token] for token in tokens.tolist() if token >= len(_SPECIAL))


def _write_clause(praises: bool, draws: np.random.Generator) -> List[str]:
    """Write a clause; with "not" before it the adjective is of the other side."""
    is_turned, is_strong = draws.random(2) < (0.25, 0.3)
    adjectives = _PRAISE if praises != bool(is_turned) else _BLAME
    middle = [*(["not"] if is_turned else []), *(["very"] if is_strong else [])]
    return ["the", _pick_word(_SUBJECTS, draws), _pick_word(_VERBS, draws), *middle, _pick_word(adjectives, draws)]


def _pick_word(words: Sequence[str], draws: np.random.Generator) -> str:
    return words[int(draws.integers(len(words)))]
