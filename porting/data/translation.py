"""Generate or read pairs of sentences to translate: small tasks with one right answer, a toy language, files of pairs.

B = sentences, S and T = tokens of a source and of a target. Tokens are int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Mapping, Sequence, Tuple

import numpy as np
import torch

from porting.support.data_files import AnyPath, make_file_error

from .buckets import pad
from .text import UNKNOWN, Vocabulary, read_lines

__all__ = ["END", "PADDING", "TASKS", "Pairs", "make_pairs", "read_pairs"]

PADDING = 0
"""The token that pads a source, and the input of the decoder, after its end."""

END = 1
"""The token after the last word of a target, and before its first one."""

_RESERVED = ("<pad>", "<end>")
_IGNORED = -100

Words = List[str]

_TRANSLATIONS: Mapping[str, Callable[[Words], Words]] = {
    "copy": lambda source: list(source),
    "reverse": lambda source: list(source[::-1]),
    "sort": lambda source: sorted(source, key=lambda word: int(word[1:])),
}

TASKS = (*_TRANSLATIONS, "grammar")
"""What `make_pairs` can make."""


@dataclass(frozen=True)
class Pairs:
    """Sentences with their translations, as tokens without padding, and the words that the tokens mean."""

    sources: Tuple[Tuple[int, ...], ...]
    targets: Tuple[Tuple[int, ...], ...]
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def source_lengths(self) -> List[int]:
        """The number of words of each source."""
        return [len(source) for source in self.sources]

    @property
    def target_lengths(self) -> List[int]:
        """The number of tokens that the decoder gets for each target: its words and END."""
        return [len(target) + 1 for target in self.targets]

    def select(self, places: Sequence[int]) -> Pairs:
        """Take the pairs at these places."""
        return Pairs(
            tuple(self.sources[place] for place in places),
            tuple(self.targets[place] for place in places),
            self.source_vocabulary,
            self.target_vocabulary,
        )

    def tensors(
        self, *, source_length: int, target_length: int, reverse: bool = True
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pad all pairs: sources_BS, targets_BT as the decoder is given them, and labels_BT.

        Sources are reversed unless asked otherwise, so that the first words of source and target are near each other.
        A target starts with END, its label ends with it; labels of padding are -100, which losses ignore.

        >>> pairs = make_pairs(2, task="copy", seed=0, max_length=3)
        >>> [tuple(tensor.shape) for tensor in pairs.tensors(source_length=3, target_length=4)]
        [(2, 3), (2, 4), (2, 4)]
        """
        sources = [source[::-1] if reverse else source for source in self.sources]
        return (
            pad(sources, length=source_length, value=PADDING),
            pad([(END, *target) for target in self.targets], length=target_length, value=PADDING),
            pad([(*target, END) for target in self.targets], length=target_length, value=_IGNORED),
        )


def make_pairs(
    num_pairs: int, *, task: str, seed: int, num_words: int = 10, min_length: int = 2, max_length: int = 8
) -> Pairs:
    """Make sentences and their translations: a task is "copy", "reverse", "sort" or "grammar".

    The first three have sentences of `min_length` to `max_length` of `num_words` made-up words, all lengths equally
    likely. "grammar" has sentences of 5 to 17 words in a toy language, which are translated into another: the verb goes
    to the end of its clause, adjectives follow their nouns, and articles agree with them. A longer series begins
    with the shorter one.

    >>> pairs = make_pairs(1, task="grammar", seed=0)
    >>> pairs.source_vocabulary.text(pairs.sources[0])
    'a red fish sees the cat'
    >>> pairs.target_vocabulary.text(pairs.targets[0])
    'to pesno ruvo lo miro vedet'
    """
    if task not in TASKS:
        raise ValueError(f"there is no task {task!r}; there are {', '.join(map(repr, TASKS))}")
    if not 1 <= min_length <= max_length or num_words < 1:
        raise ValueError(f"sentences of {min_length} to {max_length} of {num_words} words cannot be made")
    generator = np.random.default_rng(seed)
    if task == "grammar":
        drawn = [_draw_sentence(generator) for _ in range(num_pairs)]
        return _make_pairs_of(drawn, _make_vocabulary(_SOURCE_WORDS), _make_vocabulary(_TARGET_WORDS))
    words = [f"w{number}" for number in range(num_words)]
    translate = _TRANSLATIONS[task]
    drawn = []
    for _ in range(num_pairs):
        length = int(generator.integers(min_length, max_length + 1))
        source = [words[number] for number in generator.integers(num_words, size=length)]
        drawn.append((source, translate(source)))
    return _make_pairs_of(drawn, _make_vocabulary(words), _make_vocabulary(words))


def read_pairs(path: AnyPath) -> Pairs:
    """Read a file with a pair a line: words of the source, a tabulator, words of the target, blanks between words.

    Raises PortingError F002 for a missing file, and F001 with the line for one that is damaged, or whose line has no
    tabulator, two of them, no words beside it, or one of the words `<pad>` and `<end>`, whose tokens have a meaning.
    """
    drawn: List[Tuple[Words, Words]] = []
    for number, line in enumerate(read_lines(path), start=1):
        parts = line.split("\t")
        if len(parts) != 2:
            raise make_file_error(path, f"{len(parts) - 1} tabulators, not one", line=number)
        source, target = parts[0].split(), parts[1].split()
        if not (source and target):
            raise make_file_error(path, f"no words in the {'target' if source else 'source'}", line=number)
        taken = next((word for word in (*source, *target) if word in _RESERVED), None)
        if taken:
            raise make_file_error(path, f"the word `{taken}` cannot be told from the token of that name", line=number)
        drawn.append((source, target))
    sides = [[word for pair in drawn for word in pair[side]] for side in (0, 1)]
    return _make_pairs_of(drawn, *(Vocabulary.of(words, reserved=(*_RESERVED, UNKNOWN)) for words in sides))


def _make_pairs_of(drawn: Sequence[Tuple[Words, Words]], sources: Vocabulary, targets: Vocabulary) -> Pairs:
    return Pairs(
        tuple(tuple(sources.numbers(source).tolist()) for source, _target in drawn),
        tuple(tuple(targets.numbers(target).tolist()) for _source, target in drawn),
        sources,
        targets,
    )


def _make_vocabulary(words: Sequence[str]) -> Vocabulary:
    """Make a vocabulary that does not depend on which words were drawn."""
    return Vocabulary((*_RESERVED, *words))


# -- a toy language ----------------------------------------------------------------------------------------------------

_NOUNS = {"cat": "miro", "dog": "kano", "bird": "virno", "fish": "pesno", "child": "enta", "queen": "rela"}
_ADJECTIVES = {"small": "pit", "red": "ruv", "old": "vet", "wise": "mutr"}
_VERBS = {"sees": "vedet", "follows": "seket", "likes": "amet", "hears": "udet"}
_ADVERBS = {"often": "ofte", "never": "nune"}
_ARTICLES = {"the": "l", "a": "t"}
_AND = ("and", "e")


_FORMS = tuple(form + ending for form in (*_ARTICLES.values(), *_ADJECTIVES.values()) for ending in ("a", "o"))
_SOURCE_WORDS = (*_ARTICLES, *_ADJECTIVES, *_NOUNS, *_VERBS, *_ADVERBS, _AND[0])
_TARGET_WORDS = (*_FORMS, *_NOUNS.values(), *_VERBS.values(), *_ADVERBS.values(), _AND[1])


def _draw_sentence(generator: np.random.Generator) -> Tuple[Words, Words]:
    """Draw a sentence of one clause or two, and translate it clause by clause."""
    source, target = _draw_clause(generator)
    if generator.random() < 0.3:
        second, of_second = _draw_clause(generator)
        return [*source, _AND[0], *second], [*target, _AND[1], *of_second]
    return source, target


def _draw_clause(generator: np.random.Generator) -> Tuple[Words, Words]:
    """Draw subject, verb, object and adverb, which becomes subject, object, adverb, verb."""
    subject, of_subject = _draw_noun_phrase(generator)
    verb = _draw_word(generator, _VERBS)
    thing, of_thing = _draw_noun_phrase(generator)
    adverbs = [_draw_word(generator, _ADVERBS)] if generator.random() < 0.3 else []
    source = [*subject, verb, *thing, *adverbs]
    return source, [*of_subject, *of_thing, *(_ADVERBS[adverb] for adverb in adverbs), _VERBS[verb]]


def _draw_noun_phrase(generator: np.random.Generator) -> Tuple[Words, Words]:
    article, noun = _draw_word(generator, _ARTICLES), _draw_word(generator, _NOUNS)
    adjectives = [_draw_word(generator, _ADJECTIVES)] if generator.random() < 0.4 else []
    # article and adjective agree with the noun, whose last letter is its class
    ending = "a" if _NOUNS[noun].endswith("a") else "o"
    agreeing = [_ADJECTIVES[adjective] + ending for adjective in adjectives]
    return [article, *adjectives, noun], [_ARTICLES[article] + ending, _NOUNS[noun], *agreeing]


def _draw_word(generator: np.random.Generator, words: Mapping[str, str]) -> str:
    return list(words)[int(generator.integers(len(words)))]
