"""Sentences are labelled by what they say, equal seeds give equal ones, and padding is at the end only."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.data.sentences import PADDING, VOCABULARY, make_sentences, words_of

PRAISE = {"good", "great", "clever", "moving", "funny", "superb", "bright", "charming"}


def opinions_of(sentence):
    """Read the opinion of each clause from its words."""
    return {(clause.split()[-1] in PRAISE) != ("not" in clause.split()) for clause in sentence.split(" and ")}


@given(st.integers(0, 1000))
def test_a_label_is_what_every_clause_says(seed):
    tokens, _masks, labels = make_sentences(5, seed=seed)

    assert [opinions_of(words_of(row)) for row in tokens] == [{bool(label)} for label in labels]


@given(st.integers(0, 1000), st.integers(0, 20))
def test_a_longer_series_begins_with_the_shorter_one(seed, num_samples):
    tokens, _masks, labels = make_sentences(20, seed=seed)
    fewer = make_sentences(num_samples, seed=seed)

    assert torch.equal(fewer[0], tokens[:num_samples])
    assert torch.equal(fewer[2], labels[:num_samples])


def test_masks_are_ones_before_the_padding():
    tokens, masks, _labels = make_sentences(50, seed=0)

    assert torch.equal(masks, (tokens != PADDING).long())
    assert (masks.diff(dim=1) <= 0).all()
    assert int(tokens.max()) < len(VOCABULARY)


def test_both_labels_are_about_as_frequent():
    assert 0.45 < make_sentences(2000, seed=0)[2].float().mean() < 0.55


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()

    make_sentences(3, seed=0)

    assert torch.equal(torch.get_rng_state(), before)


def test_a_length_that_cuts_sentences_is_refused():
    with pytest.raises(ValueError, match="the longest sentence has 15 tokens"):
        make_sentences(1, seed=0, length=14)
