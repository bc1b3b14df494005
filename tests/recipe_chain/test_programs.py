"""What programs of recipes share: losses that carry results, batches of several epochs, an accuracy, a command line."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.recipe_chain import Losses, draw_batches, measure_accuracy, read_command_line


def test_losses_are_a_list_that_equals_one_without_results():
    losses = Losses([1.0, 0.5], test_accuracy=0.9)

    assert isinstance(losses, list)
    assert losses == [1.0, 0.5]
    assert losses.measured.test_accuracy == 0.9


def test_losses_print_their_fall_and_the_fractions_among_the_results():
    losses = Losses([2.0, 1.0, 0.5], weights=torch.zeros(2), BLEU=0.25, test_accuracy=0.875)

    assert losses.fall == "loss 2.0000 -> 0.5000"
    assert str(losses) == "loss 2.0000 -> 0.5000, BLEU 0.250, test accuracy 0.875"


def test_batches_go_on_with_the_next_epoch():
    loader = DataLoader(TensorDataset(torch.arange(4)), batch_size=2)

    assert [batch.tolist() for (batch,) in draw_batches(loader, 3)] == [[0, 1], [2, 3], [0, 1]]


def test_the_accuracy_is_the_share_of_right_classes():
    test_set = TensorDataset(torch.eye(4), torch.tensor([0, 1, 2, 0]))

    assert measure_accuracy(lambda inputs: inputs, test_set) == 0.75


def test_only_a_program_that_asks_for_steps_has_the_option(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "--data", "a.txt"])

    assert vars(read_command_line(None, data="a text")) == {"data": "a.txt"}
    assert vars(read_command_line(None, data="a text", steps=9)) == {"data": "a.txt", "steps": 9}


def test_the_help_says_what_data_is(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["program", "--help"])

    with pytest.raises(SystemExit):
        read_command_line("Train it.", data="a text")

    assert "Train it." in capsys.readouterr().out
