"""What the device lacks, refuses or has in part is found in a graph, all of it at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.analysis.operator_support import find_refused_call, iter_calls, iter_operator_faults
from porting.capture import capture_step
from porting.diagnostics import collected_refusals

X = torch.rand(4, 4)


def graph_of(forward, *args, mode="inference"):
    model = type("Made", (nn.Module,), {"forward": forward})()
    return capture_step(model, args or [X], mode=mode)


def test_lacking_and_refused_operators_are_found_together():
    def forward(self, x):
        x = torch.lgamma(x)
        x = torch.topk(x, 2, sorted=False).values
        return torch.linalg.svdvals(x)

    found = list(iter_operator_faults(graph_of(forward)))

    first = forward.__code__.co_firstlineno
    assert [finding.place.line - first for finding in found] == [1, 2, 3]
    assert {finding.code for finding in found} == {"C017"}


def test_the_vendor_is_quoted():
    (finding,) = iter_operator_faults(graph_of(lambda self, x: torch.topk(x, 2, sorted=False).values))

    assert "the vendor says: sorted=False unsupported; k constant; indices int32" in finding.notes


def test_one_place_has_one_finding_for_an_operator():
    def forward(self, x):
        for _ in range(3):
            x = torch.lgamma(x)
        return x

    assert len(list(iter_operator_faults(graph_of(forward)))) == 1


def test_what_is_known_at_compile_time_is_folded():
    assert not list(iter_operator_faults(graph_of(lambda self, x: x * torch.ones(4, 4).tril())))


def test_a_gradient_that_the_device_lacks_is_refused_in_training_only():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return F.pad(self.layer(x)[None], (1, 1), mode="reflect")

    training = capture_step(Padded(), [X, torch.rand(1, 4, 6)], loss=F.mse_loss)
    inference = capture_step(Padded(), [X], mode="inference")

    assert [finding.code for finding in iter_operator_faults(training)] == ["C017"]
    assert not list(iter_operator_faults(inference))


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: F.layer_norm(x, (4,)),
        lambda self, x: F.conv_transpose1d(x[None], torch.ones(4, 4, 3, device=x.device), stride=2, output_padding=1),
    ],
    ids=["norm without weight", "output padding"],
)
def test_what_is_there_in_part_is_a_warning(forward):
    assert [finding.code for finding in iter_operator_faults(graph_of(forward))] == ["C041"]


def test_an_operator_that_a_port_computes_is_marked():
    refused = [find_refused_call(call) for call in iter_calls(graph_of(lambda self, x: torch.xlogy(x, x)))]

    assert [(call.name, call.in_ports) for call in refused if call] == [("xlogy", True)]


def test_torchs_own_attention_may_unflatten():
    graph = graph_of(lambda self, x: x.unflatten(0, (2, 2)))

    assert [call.name for call in map(find_refused_call, iter_calls(graph)) if call] == ["unflatten"]
    assert not list(iter_operator_faults(graph, attention=[""]))


def test_what_a_capture_has_told_is_not_told_again():
    def forward(self, x):
        return torch.nonzero(x), torch.unique(x.int())

    with collected_refusals():
        graph = graph_of(forward)

    assert not list(iter_operator_faults(graph))


IDS = torch.randint(4, (4, 4))
OFFSETS = torch.tensor([0, 2])


@pytest.mark.parametrize(
    ("layer", "batch", "remedy"),
    [
        (nn.Embedding(4, 3, sparse=True), IDS, "`sparse=False`"),
        (nn.Embedding(4, 3, scale_grad_by_freq=True), IDS, "`scale_grad_by_freq=False`"),
        (nn.EmbeddingBag(4, 3, sparse=True), IDS, "`sparse=False`"),
        (nn.EmbeddingBag(4, 3, padding_idx=0), IDS, "without `padding_idx`"),
        (nn.ConvTranspose1d(4, 3, 2, dilation=2), X[None], "`dilation=1`"),
        (nn.Upsample(scale_factor=1.5, mode="bilinear"), X[None, None], "give the size instead of the factor"),
        (nn.Upsample(scale_factor=(1.0, 2.0), mode="bilinear"), X[None, None], "give the size instead of the factors"),
        (nn.Upsample(scale_factor=2.0, mode="trilinear"), X[None, None, None], "take `mode='nearest'`"),
        (
            nn.Upsample(scale_factor=2.0, mode="bicubic", align_corners=True),
            X[None, None],
            "take `align_corners=False`",
        ),
    ],
    ids=lambda value: "" if isinstance(value, torch.Tensor) else str(value),
)
def test_a_form_that_is_refused_has_a_remedy_of_its_own(layer, batch, remedy):
    faults = list(iter_operator_faults(capture_step(layer, [batch], mode="inference")))

    assert len(faults) == 1
    assert remedy in faults[0].help[0]
