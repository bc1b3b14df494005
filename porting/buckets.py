"""Group sequences of many lengths into batches of few: the lengths to pad to, the cost of padding, and the padding.

A static graph takes one shape. So every length that sequences are padded to, a bucket, is a program to compile; fewer
buckets cost more padding, which is wasted work.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass
from typing import List, Sequence, Tuple

import torch

from porting.diagnostics import align_columns

__all__ = ["Buckets", "PaddingReport", "choose_buckets", "pad"]


@dataclass(frozen=True)
class Buckets:
    """The lengths that sequences are padded to, in ascending order.

    >>> Buckets((4, 8)).bucket_of(5)
    8
    """

    lengths: Tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths or self.lengths[0] < 1 or list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"the lengths of buckets are positive and ascend, unlike {self.lengths}")

    def bucket_of(self, length: int) -> int:
        """Return the shortest bucket that a sequence fits into; ValueError when it fits into none."""
        place = bisect.bisect_left(self.lengths, length)
        if place == len(self.lengths):
            raise ValueError(f"a sequence of {length} does not fit into the longest bucket, {self.lengths[-1]}")
        return self.lengths[place]

    def members(self, lengths: Sequence[int]) -> Tuple[List[int], ...]:
        """Sort sequences into buckets: for each bucket the indices of its sequences in `lengths`.

        >>> Buckets((4, 8)).members([3, 8, 4])
        ([0, 2], [1])
        """
        members: Tuple[List[int], ...] = tuple([] for _ in self.lengths)
        for place, length in enumerate(lengths):
            members[self.lengths.index(self.bucket_of(length))].append(place)
        return members

    def report(self, lengths: Sequence[int]) -> PaddingReport:
        """Count the tokens and the padding of sequences of these lengths."""
        rows = []
        for bucket, places in zip(self.lengths, self.members(lengths)):
            rows.append((bucket, len(places), sum(lengths[place] for place in places)))
        return PaddingReport(tuple(rows))


@dataclass(frozen=True)
class PaddingReport:
    """The sequences and tokens of each bucket; `rows` are (length, sequences, tokens).

    >>> print(Buckets((4, 8)).report([3, 8, 4, 5]))
    bucket  sequences  tokens  places  padding
         4          2       7       8    12.5%
         8          2      13      16    18.8%
       all          4      20      24    16.7%
    """

    rows: Tuple[Tuple[int, int, int], ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(tokens for _length, _sequences, tokens in self.rows)

    @property
    def num_places(self) -> int:
        """The places that are computed: tokens and padding."""
        return sum(length * sequences for length, sequences, _tokens in self.rows)

    @property
    def padding_share(self) -> float:
        """The part of all places that is padding, from 0 to 1: the wasted work."""
        return 1 - self.num_tokens / self.num_places if self.num_places else 0.0

    def __str__(self) -> str:
        counts = [(str(length), number, tokens, length * number) for length, number, tokens in self.rows]
        counts.append(("all", sum(number for _length, number, _tokens in self.rows), self.num_tokens, self.num_places))
        table = [("bucket", "sequences", "tokens", "places", "padding")]
        for name, number, tokens, places in counts:
            share = 1 - tokens / places if places else 0.0
            table.append((name, str(number), str(tokens), str(places), f"{share:.1%}"))
        return "\n".join(align_columns(table, right=range(5)))


def choose_buckets(lengths: Sequence[int], num_buckets: int) -> Buckets:
    """Choose at most `num_buckets` lengths with the least padding for sequences of these lengths.

    No other choice has less: all are compared, by dynamic programming over the lengths that occur.

    >>> choose_buckets([2, 2, 3, 9, 9, 10], num_buckets=2)
    Buckets(lengths=(3, 10))
    """
    counts = Counter(lengths)
    occurring = sorted(counts)
    if not occurring or occurring[0] < 1 or num_buckets < 1:
        raise ValueError("buckets need at least one sequence, lengths of at least 1, and a bucket")
    totals = [0]
    for length in occurring:
        totals.append(totals[-1] + counts[length])
    # the fewest places for the shortest sequences, up to and without number `end`, and the buckets that take them
    best: List[Tuple[int, Tuple[int, ...]]] = [(0, ())]
    best += [(totals[end] * occurring[end - 1], (occurring[end - 1],)) for end in range(1, len(totals))]
    for _bucket in range(1, min(num_buckets, len(occurring))):
        better = [best[0]]
        for end in range(1, len(totals)):
            longest = occurring[end - 1]
            candidates = (
                (best[start][0] + (totals[end] - totals[start]) * longest, (*best[start][1], longest))
                for start in range(end)
            )
            better.append(min(candidates, key=lambda candidate: candidate[0]))
        best = better
    return Buckets(best[-1][1])


def pad(sequences: Sequence[Sequence[int]], *, length: int, value: int) -> torch.Tensor:
    """Make int64 rows of `length` from sequences, padded with `value`; ValueError for one that is longer.

    >>> pad([[5, 6], [7]], length=3, value=0).tolist()
    [[5, 6, 0], [7, 0, 0]]
    """
    padded = torch.full((len(sequences), length), value, dtype=torch.int64)
    for row, sequence in zip(padded, sequences):
        if len(sequence) > length:
            raise ValueError(f"a sequence of {len(sequence)} does not fit into {length}")
        row[: len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
    return padded
