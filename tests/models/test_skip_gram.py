"""Skip-gram starts undecided, scores each context by itself, and finds planted topics."""

from __future__ import annotations

import math

import pytest
import torch

from porting.data.text import context_windows, make_topic_text
from porting.models.skip_gram import build, loss, nearest_words, topic_recovery


def test_an_untrained_model_is_undecided_between_all_words():
    contexts, centres = torch.randint(80, (5, 6)), torch.randint(80, (5,))

    value = loss(build("small")(contexts), centres)

    assert value.item() == pytest.approx(math.log(80), rel=1e-6)


def test_the_vectors_start_uniform_and_as_small_as_they_are_wide():
    vectors = build("ptb").embedding.weight.detach()

    assert vectors.abs().max() <= 1 / 100
    assert vectors.std().item() == pytest.approx(2 / 100 / math.sqrt(12), rel=0.01)


def test_the_loss_is_the_mean_over_the_pairs_of_context_and_centre():
    model = build("small")
    torch.nn.init.normal_(model.output.weight)
    contexts, centres = torch.tensor([[1, 2], [3, 4]]), torch.tensor([5, 6])

    value = loss(model(contexts), centres)

    expected = []
    for row, centre in zip(contexts.tolist(), centres.tolist()):
        for context in row:
            scores = model.output.weight @ model.embedding.weight[context] + model.output.bias
            expected.append(scores.exp().sum().log() - scores[centre])
    torch.testing.assert_close(value, torch.stack(expected).mean())


def test_nearest_words_are_those_of_the_highest_cosine():
    vectors = torch.tensor([[10.0, 0.0], [0.0, 2.0], [1.0, 0.1], [0.1, 1.0]])

    assert nearest_words(vectors, num_neighbours=1).flatten().tolist() == [2, 3, 0, 1]


def test_words_without_a_topic_do_not_count_as_neighbours():
    vectors = torch.tensor([[1.0, 0.0], [0.8, 0.6], [1.0, 0.01], [0.0, 1.0], [-0.6, 0.8]])
    topics = torch.tensor([0, 0, -1, 1, 1])

    assert topic_recovery(vectors, topics, num_neighbours=1) == 1.0


def test_training_recovers_the_planted_topics():
    text = make_topic_text(30_000, seed=0)
    contexts, centres = context_windows(text.tokens, window=3)
    torch.manual_seed(0)
    model = build("small")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    before = topic_recovery(model.embedding.weight, text.topics)

    for _step in range(150):
        rows = torch.randint(len(centres), (256,), generator=generator)
        optimizer.zero_grad()
        loss(model(contexts[rows]), centres[rows]).backward()
        optimizer.step()

    assert before < 0.3
    assert topic_recovery(model.embedding.weight, text.topics) > 0.95
