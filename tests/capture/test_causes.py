"""A refusal in the middle of a function or layer proposes what helps there."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from porting.capture import capture_step
from porting.diagnostics import CaptureError


class Packed(nn.Module):
    """A recurrent layer over packed sequences, whose lengths `move` brings to the host."""

    def __init__(self, move):
        super().__init__()
        self.layer, self.move = nn.GRU(4, 8, batch_first=True), move

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, self.move(lengths), batch_first=True)
        return self.layer(packed)[1][0]


class Padded(Packed):
    """The same with the padded batch, as the remedy says."""

    def forward(self, x, lengths):
        kept = torch.arange(x.shape[1]).to(x.device) < lengths.unsqueeze(1)
        return (self.layer(x)[0] * kept.unsqueeze(-1)).sum(1)


class Moved(nn.Module):
    def forward(self, x):
        return x.cpu()


BATCH = torch.randn(4, 5, 4), torch.tensor([5, 4, 3, 2])


def refusal_of(model, *batch):
    with pytest.raises(CaptureError) as caught:
        capture_step(model, batch, mode="training")
    return caught.value.finding


@pytest.mark.parametrize("move", [lambda n: n, lambda n: n.cpu(), lambda n: n.tolist()], ids=["as is", "cpu", "list"])
def test_lengths_of_packed_sequences_are_told_of_the_padded_batch(move):
    (remedy,) = refusal_of(Packed(move), *BATCH).help

    assert remedy.endswith("give the layer the padded batch, and blank out what it returns for the padding")


def test_the_padded_batch_is_captured():
    capture_step(Padded(None), BATCH, mode="inference")


def test_another_move_is_told_to_stay():
    assert refusal_of(Moved(), BATCH[0]).help[0].startswith("leave the tensor on the device")


@pytest.mark.parametrize(("kind", "shape"), [(nn.BatchNorm1d, (8, 4)), (nn.BatchNorm2d, (8, 4, 3, 3))])
def test_a_norm_without_a_momentum_is_told_of_one(kind, shape):
    (remedy,) = refusal_of(kind(4, momentum=None), torch.randn(shape)).help

    assert f"`{kind.__name__}(..., momentum=0.1)`" in remedy
    capture_step(kind(4, momentum=0.1), [torch.randn(shape)], mode="inference")


class Listed(nn.Module):
    def __init__(self, keep=list):
        super().__init__()
        self.layers = keep([nn.Linear(4, 3)])

    def forward(self, x):
        return self.layers[0](x)


class Making(nn.Module):
    def forward(self, x):
        return nn.BatchNorm1d(4)(x)


class Keeping(nn.Module):
    def forward(self, x):
        self.layer = nn.Linear(4, 3)
        return self.layer(x)


@pytest.mark.parametrize(("model", "kind"), [(Listed(), "Linear"), (Making(), "BatchNorm1d"), (Keeping(), "Linear")])
def test_a_layer_that_is_no_part_of_the_model_is_to_be_made_in_its_constructor(model, kind):
    with pytest.raises(CaptureError) as caught:
        capture_step(model, [torch.randn(8, 4)], mode="inference")

    finding = caught.value.finding
    assert finding.code == "C003"
    assert f"a `{kind}` that is no part of the model" in finding.message
    assert f"`self.name = {kind}(...)`" in finding.help[0]


def test_layers_in_a_module_list_are_parts_of_the_model():
    graph = capture_step(Listed(nn.ModuleList), [torch.randn(8, 4)], mode="inference")

    assert [info.name for info in graph.parameters] == ["layers.0.weight", "layers.0.bias"]
