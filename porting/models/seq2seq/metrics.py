"""How good translations are: BLEU, the share of n-grams that they have in common with a reference."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, List, Sequence

__all__ = ["bleu", "cut_at_end"]


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
    """Turn tokens_BT, as a tensor or lists, into sentences: what stands before the first `end` of each row.

    >>> cut_at_end([[5, 6, 1, 9], [7, 1, 1, 1]], end=1)
    [[5, 6], [7]]
    """
    rows = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    return [row[: row.index(end)] if end in row else list(row) for row in rows]


def _count_ngrams(tokens: Sequence[Any], order: int) -> Counter[Any]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))
