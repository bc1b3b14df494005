"""Turn text into numbers: files of words, generated text whose entropy is known, and the windows that models train on.

N = tokens of a text, V = size of the vocabulary, B = texts that are read side by side, T = tokens of a window,
C = contexts of a place. Tokens are int64.
"""

from __future__ import annotations

import bisect
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch

from porting.support.data_files import AnyPath, make_file_error, read_encoded_lines

__all__ = [
    "END_OF_SENTENCE",
    "UNKNOWN",
    "MarkovSource",
    "TopicText",
    "Vocabulary",
    "context_windows",
    "continued_windows",
    "make_markov_source",
    "make_topic_text",
    "read_lines",
    "read_words",
]

END_OF_SENTENCE = "<eos>"
UNKNOWN = "<unk>"


# -- files -------------------------------------------------------------------------------------------------------------


def read_words(path: AnyPath) -> List[str]:
    """Read a text of one sentence a line, words between blanks, as the Penn Treebank's `ptb.train.txt` is.

    END_OF_SENTENCE follows each line that has words. Raises what `read_lines` does.
    """
    words: List[str] = []
    for line in read_lines(path):
        found = line.split()
        if found:
            words += [*found, END_OF_SENTENCE]
    return words


def read_lines(path: AnyPath) -> List[str]:
    """Read the lines of a text in UTF-8.

    Raises PortingError F002 for a missing file, and F001 with line and column for bytes that are no UTF-8, for control
    characters, as in blocks of zeros that a crash leaves, and for a file without a word. A text that was cut
    off between two characters cannot be recognised.
    """
    lines = read_encoded_lines(path, encoding="utf-8", fault="byte {byte:#04x} at position {position} is no UTF-8")
    for number, line in enumerate(lines, start=1):
        for column, character in enumerate(line, start=1):
            if character != "\t" and unicodedata.category(character) == "Cc":
                raise make_file_error(path, f"the control character {character!r}", line=number, column=column)
    if not any(line.strip() for line in lines):
        raise make_file_error(path, "the file has no words", line=1)
    return lines


@dataclass(frozen=True)
class Vocabulary:
    """The words of a text and their numbers, which are their places in `words`.

    >>> vocabulary = Vocabulary.of("the cat saw the dog".split(), reserved=("<unk>",))
    >>> vocabulary.words
    ('<unk>', 'the', 'cat', 'dog', 'saw')
    >>> vocabulary.numbers("the cow".split()).tolist()
    [1, 0]
    """

    words: Tuple[str, ...]
    _numbers: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers: Dict[str, int] = {word: number for number, word in enumerate(self.words)}
        if len(numbers) != len(self.words):
            raise ValueError("a vocabulary has each word once")
        object.__setattr__(self, "_numbers", numbers)

    @classmethod
    def of(cls, words: Iterable[str], *, reserved: Sequence[str] = (), max_size: Optional[int] = None) -> Vocabulary:
        """Collect the words of a text, the frequent ones first, `reserved` ones before all.

        With `max_size` the rare words are left out, which need UNKNOWN among the words then. It is a ValueError where
        not even the reserved ones fit.
        """
        if max_size is not None and max_size < len(reserved):
            raise ValueError(f"{len(reserved)} words are reserved, more than a `max_size` of {max_size}")
        counts = Counter(words)
        for word in reserved:
            counts.pop(word, None)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls((*reserved, *ordered)[:max_size])

    def __len__(self) -> int:
        return len(self.words)

    def numbers(self, words: Iterable[str]) -> torch.Tensor:
        """Number words: tokens_N. Unknown words become UNKNOWN, or raise KeyError if that is no word."""
        numbers = [self._numbers.get(word, self._numbers.get(UNKNOWN, word)) for word in words]
        strange = next((number for number in numbers if isinstance(number, str)), None)
        if strange is not None:
            raise KeyError(f"{strange!r} is not in the vocabulary, and neither is {UNKNOWN!r}")
        return torch.tensor(numbers, dtype=torch.int64)

    def text(self, numbers: Iterable[int]) -> str:
        """Write tokens as words.

        >>> Vocabulary(("a", "b")).text([1, 0])
        'b a'
        """
        return " ".join(self.words[int(number)] for number in numbers)


# -- generated text ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarkovSource:
    """A source of tokens, each of which depends on the last `order` ones and on nothing else.

    `transitions` has the probabilities of the next token after each context, (V, ..., V) with order + 1 dimensions.
    Its entropy is known, so that no model can do better, and one that knows the transitions does as well.
    """

    transitions: np.ndarray

    @property
    def num_words(self) -> int:
        """The size of the vocabulary."""
        return int(self.transitions.shape[-1])

    @property
    def order(self) -> int:
        """The number of tokens that the next one depends on."""
        return self.transitions.ndim - 1

    @property
    def entropy(self) -> float:
        """The entropy rate in nats per token: the least mean loss of any model, and exp of it the least perplexity.

        It is the entropy after each context, weighted by how often the context occurs in the long run.

        >>> round(MarkovSource(np.array([[0.5, 0.5], [0.5, 0.5]])).entropy, 4)
        0.6931
        """
        surprise = -np.log(self.transitions, where=self.transitions > 0, out=np.zeros_like(self.transitions))
        of_context = (self.transitions * surprise).sum(axis=-1)
        return float((self._find_stationary_shares() * of_context).sum())

    def sample(self, num_tokens: int, *, seed: int) -> torch.Tensor:
        """Draw a text: tokens_N. A longer one begins with the shorter one.

        >>> source = make_markov_source(5, seed=0)
        >>> torch.equal(source.sample(9, seed=1)[:4], source.sample(4, seed=1))
        True
        """
        chances = np.random.default_rng(seed).random(num_tokens).tolist()
        rows = self.transitions.reshape(-1, self.num_words).cumsum(axis=1).tolist()
        context, tokens = 0, []
        for chance in chances:
            token = min(bisect.bisect_right(rows[context], chance), self.num_words - 1)
            tokens.append(token)
            context = (context * self.num_words + token) % len(rows)
        return torch.tensor(tokens, dtype=torch.int64)

    def loss(self, tokens: torch.Tensor) -> float:
        """Compute the mean loss in nats on tokens_N of a model that knows the transitions: near `entropy`.

        The first `order` tokens are read and not predicted; ValueError where there are no others.
        """
        if len(tokens) <= self.order:
            raise ValueError(f"{len(tokens)} tokens have none behind a context of {self.order}")
        values = tokens.numpy()
        places = tuple(values[start : len(values) - self.order + start] for start in range(self.order + 1))
        return float(-np.log(self.transitions[places]).mean())

    def _find_stationary_shares(self) -> np.ndarray:
        """Return how often each context occurs in the long run, (V, ..., V) with `order` dimensions."""
        # keeping half of the old shares lets the iteration converge even for a periodic chain
        share = np.full(self.transitions.shape[:-1], self.num_words ** -float(self.order))
        for _round in range(10_000):
            # the oldest token of the context is forgotten, the new one joins it
            after = (share[..., None] * self.transitions).sum(axis=0)
            if np.abs(after - share).sum() < 1e-13:
                return after
            share = (share + after) / 2
        return share


def make_markov_source(num_words: int, *, order: int = 2, num_likely: int = 3, seed: int) -> MarkovSource:
    """Make a source in which `num_likely` tokens have 95 % of the probability after each context.

    >>> source = make_markov_source(10, seed=0)
    >>> source.order, source.num_words, round(source.entropy, 2)
    (2, 10, 1.05)
    """
    if not 1 <= num_likely <= num_words:
        raise ValueError(f"{num_likely} likely words of {num_words}")
    generator = np.random.default_rng(seed)
    num_contexts = num_words**order
    rows = np.full((num_contexts, num_words), 0.05 / num_words)
    for row in rows:
        likely = generator.permutation(num_words)[:num_likely]
        row[likely] += 0.95 * generator.dirichlet(np.ones(num_likely))
    return MarkovSource((rows / rows.sum(axis=1, keepdims=True)).reshape((num_words,) * (order + 1)))


@dataclass(frozen=True)
class TopicText:
    """A text that keeps to a topic for a while: tokens_N, and topics_V with the topic of each word, -1 for none."""

    tokens: torch.Tensor
    topics: torch.Tensor


def make_topic_text(
    num_tokens: int,
    *,
    num_topics: int = 8,
    words_per_topic: int = 8,
    num_common: int = 16,
    mean_stay: int = 40,
    seed: int,
) -> TopicText:
    """Make a text of words that belong to topics, with words that stand everywhere between them.

    Words of one topic occur together, so that word vectors can group them; their numbers do not reveal it. Three tokens
    of ten are common words.

    >>> text = make_topic_text(1000, seed=0)
    >>> text.topics.shape, int(text.topics.max())
    (torch.Size([80]), 7)
    """
    generator = np.random.default_rng(seed)
    num_words = num_topics * words_per_topic + num_common
    topics = np.full(num_words, -1)
    topics[: num_topics * words_per_topic] = np.repeat(np.arange(num_topics), words_per_topic)
    generator.shuffle(topics)
    words_of = [np.flatnonzero(topics == topic) for topic in range(-1, num_topics)]

    changes = generator.random(num_tokens) < 1 / mean_stay
    drawn = generator.integers(num_topics, size=num_tokens)
    # the topic drawn at the last change; the first token counts as one
    last_change = np.maximum.accumulate(np.where(changes, np.arange(num_tokens), 0))
    kind = np.where(generator.random(num_tokens) < 0.3, -1, drawn[last_change])
    chance = generator.random(num_tokens)
    tokens = np.empty(num_tokens, dtype=np.int64)
    for topic, words in enumerate(words_of, start=-1):
        is_it = kind == topic
        if is_it.any():
            tokens[is_it] = words[(chance[is_it] * len(words)).astype(np.int64)]
    return TopicText(torch.from_numpy(tokens), torch.from_numpy(topics.astype(np.int64)))


# -- windows -----------------------------------------------------------------------------------------------------------


def continued_windows(tokens: torch.Tensor, *, batch_size: int, length: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Cut tokens_N into windows for truncated backpropagation: tokens and labels, both (windows x B, T).

    The text is cut into B parts that are read side by side. Read in order and B at a time, each row continues where the
    same row of the batch before has stopped, so that a state can be carried; the labels are one token further. What
    does not fill the last windows is left out.

    >>> tokens, labels = continued_windows(torch.arange(13), batch_size=2, length=3)
    >>> tokens.tolist()
    [[0, 1, 2], [6, 7, 8], [3, 4, 5], [9, 10, 11]]
    >>> labels.tolist()
    [[1, 2, 3], [7, 8, 9], [4, 5, 6], [10, 11, 12]]
    """
    num_windows = (len(tokens) - 1) // (batch_size * length)
    if num_windows < 1:
        raise ValueError(f"{len(tokens)} tokens do not fill {batch_size} windows of {length} and one label more")
    used = num_windows * batch_size * length

    def windows(start: int) -> torch.Tensor:
        parts = tokens[start : start + used].view(batch_size, num_windows, length)
        return parts.transpose(0, 1).reshape(-1, length)

    return windows(0), windows(1)


def context_windows(tokens: torch.Tensor, *, window: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Take from tokens_N every word that has `window` others on both sides: contexts_BC and centres_B.

    >>> context_windows(torch.arange(5), window=1)
    (tensor([[0, 2],
            [1, 3],
            [2, 4]]), tensor([1, 2, 3]))
    """
    if len(tokens) < 2 * window + 1:
        raise ValueError(f"{len(tokens)} tokens have no word with {window} others on both sides")
    around = tokens.unfold(0, 2 * window + 1, 1)
    return torch.cat([around[:, :window], around[:, window + 1 :]], dim=1), around[:, window].contiguous()
