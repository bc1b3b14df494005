"""The cell unrolled by hand is torch's LSTM."""

from __future__ import annotations

import torch

from porting.models.recurrent import (
    LSTMClassifier,
    RecurrentConfig,
    UnrolledLSTMClassifier,
    example_batch,
    loss,
)

SMALL = RecurrentConfig(num_features=3, hidden=5, length=7, num_classes=4)


def test_the_unrolled_cell_computes_what_the_layer_does():
    layer, unrolled = LSTMClassifier(SMALL), UnrolledLSTMClassifier(SMALL)
    weights = layer.state_dict()
    names = {"from_input": "ih", "from_hidden": "hh"}
    unrolled.load_state_dict(
        {
            **{f"{ours}.weight": weights[f"lstm.weight_{theirs}_l0"] for ours, theirs in names.items()},
            **{f"{ours}.bias": weights[f"lstm.bias_{theirs}_l0"] for ours, theirs in names.items()},
            **{name: value for name, value in weights.items() if name.startswith("classifier")},
        }
    )
    sequences, _ = example_batch(SMALL, batch_size=2)

    torch.testing.assert_close(unrolled(sequences), layer(sequences))


def test_the_example_batch_trains():
    sequences, labels = example_batch(SMALL, batch_size=2)

    loss(LSTMClassifier(SMALL)(sequences), labels).backward()
