"""The beam search finds what trying out all alignments finds."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn


class Decoder(nn.Module):
    """A module that decodes with fixed settings."""

    def __init__(self, poptorch, **settings):
        super().__init__()
        self.decode = lambda probs, lengths: poptorch.ctc_beam_search_decoder(probs, lengths, **settings)

    def forward(self, probs, lengths):
        return self.decode(probs, lengths)


def sequences_by_probability(log_probs_TC, blank):
    """Add up the probabilities of all alignments of each label sequence, the most likely first."""
    totals = {}
    for alignment in itertools.product(range(log_probs_TC.shape[1]), repeat=log_probs_TC.shape[0]):
        labels = tuple(label for label, _run in itertools.groupby(alignment) if label != blank)
        score = sum(float(log_probs_TC[step, label]) for step, label in enumerate(alignment))
        totals[labels] = totals.get(labels, 0.0) + math.exp(score)
    return sorted(totals.items(), key=lambda item: -item[1])


@pytest.mark.parametrize("blank", [0, 2])
def test_a_wide_beam_finds_the_most_likely_sequences(poptorch, blank):
    generator = torch.Generator().manual_seed(3)
    probs = torch.randn(5, 2, 3, generator=generator).log_softmax(dim=2)
    model = poptorch.inferenceModel(Decoder(poptorch, blank=blank, beam_width=300, top_paths=4))

    scores, lengths, paths = model(probs, torch.tensor([5, 3]))

    for sample, length in enumerate([5, 3]):
        expected = sequences_by_probability(probs[:length, sample], blank)[:4]
        for rank, (labels, probability) in enumerate(expected):
            assert lengths[sample, rank] == len(labels)
            assert paths[sample, rank, : len(labels)].tolist() == list(labels)
            assert scores[sample, rank].exp().item() == pytest.approx(probability, rel=1e-4)


def test_repeated_labels_need_a_blank_between_them(poptorch):
    certain = torch.full((3, 1, 2), -20.0)
    for step, label in enumerate([1, 0, 1]):
        certain[step, 0, label] = 0.0
    model = poptorch.inferenceModel(Decoder(poptorch))

    _, lengths, paths = model(certain, torch.tensor([3]))

    assert lengths.tolist() == [[2]]
    assert paths[0, 0].tolist() == [1, 1, 0]


def test_the_results_have_the_shapes_of_the_cpu_s_zeros(poptorch):
    decoder = Decoder(poptorch, beam_width=4, top_paths=3)
    inputs = torch.randn(6, 2, 5).log_softmax(2), torch.tensor([6, 4])

    on_cpu, on_device = decoder(*inputs), poptorch.inferenceModel(decoder)(*inputs)

    assert [(t.shape, t.dtype) for t in on_cpu] == [(t.shape, t.dtype) for t in on_device]
    assert [(tuple(t.shape), t.dtype) for t in on_cpu] == [
        ((2, 3), torch.float32),
        ((2, 3), torch.int32),
        ((2, 3, 6), torch.int32),
    ]
    assert all((t == 0).all() for t in on_cpu)


def test_a_narrow_beam_returns_the_paths_asked_for(poptorch):
    model = poptorch.inferenceModel(Decoder(poptorch, beam_width=1, top_paths=2))

    scores, _, _ = model(torch.randn(4, 1, 3).log_softmax(2), torch.tensor([4]))

    assert scores[0, 0] >= scores[0, 1] > -math.inf


def test_where_fewer_sequences_are_possible_the_rest_have_no_probability(poptorch):
    only_blank = torch.tensor([[[0.0, -math.inf]]])
    model = poptorch.inferenceModel(Decoder(poptorch, top_paths=2))

    scores, lengths, _ = model(only_blank, torch.tensor([1]))

    assert scores.tolist() == [[0.0, -math.inf]]
    assert lengths.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("probs", "lengths", "message"),
    [
        ([1], torch.tensor([1]), "ctc_beam_search_decoder: probs must be a torch.tensor argument"),
        (torch.ones(1, 1, 1), [1], "ctc_beam_search_decoder: lengths must be a torch.tensor argument"),
        (torch.ones(1, 1), torch.tensor([1]), "probs must be a 3-dimensional tensor"),
    ],
)
def test_arguments_are_checked(poptorch, probs, lengths, message):
    with pytest.raises(poptorch.Error, match=message):
        poptorch.ctc_beam_search_decoder(probs, lengths)
