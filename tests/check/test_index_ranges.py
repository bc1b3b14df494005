"""Labels and indices of batches, and what they choose from."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting.check import check


class Tokens(nn.Module):
    """Scores of three classes for each of five tokens, out of ten."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.scores = nn.Linear(4, 3)

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        scores_BCT: torch.Tensor = self.scores(self.table(tokens_BT)).transpose(1, 2)
        return scores_BCT


def iter_notes(*args, **keywords):
    report = check(*args, **keywords)
    return [finding.notes[0] for finding in report.findings if finding.code == "B013"]


def list_from_one(scores_BC, labels_B):
    return F.nll_loss(F.log_softmax(scores_BC, 1), labels_B.view(-1) - 1)


def test_a_label_beyond_the_classes_is_found_with_its_value():
    notes = iter_notes(nn.Linear(4, 3), nn.CrossEntropyLoss(), (torch.ones(3, 4), torch.tensor([0, 2, 3])))

    assert notes == ["there are 3 classes, from 0 to 2; the batch has 3"]


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, -100, 2]])
def test_labels_of_the_classes_and_those_left_out_are_sound(labels):
    assert not iter_notes(nn.Linear(4, 3), nn.CrossEntropyLoss(), (torch.ones(3, 4), torch.tensor(labels)))


def test_a_label_that_this_loss_leaves_out_is_sound():
    loss = nn.CrossEntropyLoss(ignore_index=255)

    assert not iter_notes(nn.Linear(4, 3), loss, (torch.ones(2, 4), torch.tensor([0, 255])))
    assert iter_notes(nn.Linear(4, 3), loss, (torch.ones(2, 4), torch.tensor([0, 254])))


@pytest.mark.parametrize(("labels", "is_sound"), [([1, 3], True), ([0, 3], False), ([1, 4], False)])
def test_what_the_loss_computes_of_labels_is_computed_before_they_are_judged(labels, is_sound):
    notes = iter_notes(nn.Linear(4, 3), list_from_one, (torch.ones(2, 4), torch.tensor(labels)))

    assert (not notes) == is_sound


def test_a_token_without_a_row_and_a_label_without_a_class_are_two_findings():
    tokens = torch.tensor([[0, 1, 2, 3, 10]])
    labels = torch.tensor([[0, 1, 2, 0, 7]])

    notes = iter_notes(Tokens(), nn.CrossEntropyLoss(), (tokens, labels))

    assert [note.split(";")[0] for note in notes] == [
        "there are 10 rows, from 0 to 9",
        "there are 3 classes, from 0 to 2",
    ]


def test_a_later_batch_of_the_loader_is_looked_at():
    batches = [(torch.ones(2, 4), torch.tensor([0, label])) for label in (1, 2, 5)]

    notes = iter_notes(nn.Linear(4, 3), nn.CrossEntropyLoss(), batches[0], loader=batches)

    assert notes == ["there are 3 classes, from 0 to 2; batch 3 of the loader has 5"]


def test_probabilities_of_classes_are_no_labels():
    assert not iter_notes(nn.Linear(4, 3), nn.CrossEntropyLoss(), (torch.ones(2, 4), torch.full((2, 3), 7.0)))


def test_the_batch_is_as_it_was():
    labels = torch.tensor([1, 2])

    iter_notes(nn.Linear(4, 3), lambda scores, y: F.cross_entropy(scores, y.sub_(1)), (torch.ones(2, 4), labels))

    assert labels.tolist() == [1, 2]
