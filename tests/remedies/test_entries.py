"""Entries of the tables of remedies are plain data."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from porting.remedies.entries import OperatorSubstitute


def test_a_substitute_runs_on_the_device_unless_it_says_otherwise():
    assert not OperatorSubstitute("torch.hypot", torch.hypot, lambda x, y: x + y).on_host


def test_an_entry_cannot_be_changed():
    entry = OperatorSubstitute("torch.hypot", torch.hypot, lambda x, y: x + y)

    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.name = "torch.add"
