"""Pairs are translated as their task says, padded as losses want it, and files of pairs are read or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from porting.data.translation import END, PADDING, TASKS, make_pairs, read_pairs
from porting.diagnostics import PortingError


@pytest.mark.parametrize(
    ("task", "translate"), [("copy", list), ("reverse", lambda s: list(s)[::-1]), ("sort", lambda s: sorted(s))]
)
def test_targets_are_what_the_task_says(task, translate):
    pairs = make_pairs(50, task=task, seed=0)

    assert [list(target) for target in pairs.targets] == [translate(source) for source in pairs.sources]
    assert {len(source) for source in pairs.sources} == set(range(2, 9))


def test_the_toy_language_is_translated_clause_by_clause():
    pairs = make_pairs(300, task="grammar", seed=0)
    words = {word: number for number, word in enumerate(pairs.source_vocabulary.words)}
    others = {word: number for number, word in enumerate(pairs.target_vocabulary.words)}
    verbs = {words["sees"]: others["vedet"], words["follows"]: others["seket"]}
    verbs.update({words["likes"]: others["amet"], words["hears"]: others["udet"]})

    for source, target in zip(pairs.sources, pairs.targets):
        assert len(source) == len(target)
        assert 5 <= len(source) <= 17
        ends = [i for i, token in enumerate((*target, others["e"])) if token == others["e"]]
        assert [target[end - 1] for end in ends] == [verbs[token] for token in source if token in verbs]


def test_articles_and_adjectives_agree_with_their_noun():
    pairs = make_pairs(300, task="grammar", seed=1)

    for target in pairs.targets:
        words = pairs.target_vocabulary.text(target).split()
        for place, word in enumerate(words):
            if word in ("la", "lo", "ta", "to"):
                noun, after = words[place + 1], words[place + 2]
                ending = "a" if noun.endswith("a") else "o"
                assert word.endswith(ending)
                if after[:-1] in ("pit", "ruv", "vet", "mutr"):
                    assert after.endswith(ending)


@pytest.mark.parametrize("task", TASKS)
def test_a_longer_series_begins_with_the_shorter_one_and_no_stream_is_touched(task):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()

    longer, shorter = make_pairs(9, task=task, seed=3), make_pairs(4, task=task, seed=3)

    assert (longer.sources[:4], longer.targets[:4]) == (shorter.sources, shorter.targets)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def test_sources_are_reversed_targets_start_and_labels_end_with_end():
    pairs = make_pairs(1, task="copy", seed=0, min_length=3, max_length=3)
    (source,) = pairs.sources

    sources, targets, labels = pairs.tensors(source_length=5, target_length=6)

    assert sources.tolist() == [[*source[::-1], PADDING, PADDING]]
    assert targets.tolist() == [[END, *source, PADDING, PADDING]]
    assert labels.tolist() == [[*source, END, -100, -100]]


def test_sources_may_stay_as_they_are():
    pairs = make_pairs(1, task="copy", seed=0)

    sources = pairs.tensors(source_length=8, target_length=9, reverse=False)[0]

    assert sources[0, : len(pairs.sources[0])].tolist() == list(pairs.sources[0])


def test_lengths_are_those_that_tensors_need():
    pairs = make_pairs(20, task="sort", seed=0)

    pairs.tensors(source_length=max(pairs.source_lengths), target_length=max(pairs.target_lengths))
    with pytest.raises(ValueError, match="does not fit"):
        pairs.tensors(source_length=max(pairs.source_lengths), target_length=max(pairs.target_lengths) - 1)


def test_what_is_no_task_is_refused():
    with pytest.raises(ValueError, match="no task 'x'; there are 'copy', 'reverse', 'sort', 'grammar'"):
        make_pairs(1, task="x", seed=0)
    with pytest.raises(ValueError, match="sentences of 3 to 2"):
        make_pairs(1, task="copy", seed=0, min_length=3, max_length=2)


def test_a_file_of_pairs_is_read(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("the cat\tle chat\nthe dog sleeps\tle chien dort\n", encoding="utf-8")

    pairs = read_pairs(path)

    assert pairs.source_vocabulary.text(pairs.sources[1]) == "the dog sleeps"
    assert pairs.target_vocabulary.text(pairs.targets[0]) == "le chat"
    assert pairs.source_vocabulary.words[:3] == ("<pad>", "<end>", "<unk>")


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("a\tb\nc d\n", 2, "0 tabulators, not one"),
        ("a\tb\tc\n", 1, "2 tabulators, not one"),
        ("a\tb\n\tc\n", 2, "no words in the source"),
        ("a\tb\nc\t \n", 2, "no words in the target"),
        ("a\tb\n<pad> c\td\n", 2, "the word `<pad>` cannot be told from the token of that name"),
        ("a\tb <end>\n", 1, "the word `<end>` cannot be told"),
    ],
)
def test_a_line_that_is_no_pair_is_an_error_with_its_number(tmp_path, text, line, fault):
    path = tmp_path / "pairs.tsv"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(PortingError, match="F001") as info:
        read_pairs(path)

    assert fault in str(info.value)
    assert info.value.finding.place.line == line


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(PortingError, match="F002"):
        read_pairs(tmp_path / "pairs.tsv")
