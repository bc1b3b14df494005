"""Trainings on the hardware path go on from their checkpoints, and the device gets its random stream back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.hardware.side_by_side import adam, batches, port, small_net, train_ported
from tests.resumed_training import train

# the stand-in keeps no state of its random stream, only the seed
WITHOUT_DROPOUT = {"dropout": 0.0}


@pytest.mark.parametrize("kind", ["shuffled", "own generator", "shares", "workers"])
def test_a_training_goes_on_with_the_same_losses(kind, tmp_path):
    undisturbed = train(tmp_path / "whole", kind=kind, **WITHOUT_DROPOUT)

    begun = train(tmp_path / "broken", kind=kind, stop_behind=9, **WITHOUT_DROPOUT)

    assert begun[:-1] + train(tmp_path / "broken", kind=kind, **WITHOUT_DROPOUT) == undisturbed


def test_the_device_gets_its_random_stream_back(tmp_path):
    model = small_net()
    ported = port(model, nn.CrossEntropyLoss(), optimizer=adam(model), seed=7)
    train_ported(ported, batches())
    ported.save(tmp_path / "a.pt")
    kept = ported.device_executor.rng_state
    model = small_net()
    other = port(model, nn.CrossEntropyLoss(), optimizer=adam(model))

    other.load(tmp_path / "a.pt")
    other.compile(*batches()[0])

    assert len(kept) > 1
    assert other.device_executor.rng_state == kept


def test_a_port_that_has_trained_on_goes_back(tmp_path):
    model = small_net()
    ported = port(model, nn.CrossEntropyLoss(), optimizer=adam(model))
    train_ported(ported, batches())
    ported.save(tmp_path / "a.pt")
    expected = train_ported(ported, batches(6))

    ported.load(tmp_path / "a.pt")

    assert train_ported(ported, batches(6)) == expected
    assert torch.load(tmp_path / "a.pt")["step"] == 4
