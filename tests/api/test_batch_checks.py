from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import BatchError, PortingError


class Graph(nn.Module):
    """Takes an argument that holds no samples."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x, edges):
        return self.body(x + x[edges[0]].sum(0))


def test_an_argument_that_holds_no_samples_may_have_other_rows():
    ported = to_ipu(Graph(), nn.CrossEntropyLoss(), options=PortOptions(micro_batch=6))

    output, _ = ported(torch.randn(6, 4), torch.tensor([[0, 1], [2, 3]]), torch.zeros(6, dtype=torch.int64))

    assert output.shape == (6, 3)


def test_a_batch_must_have_the_rows_that_the_options_ask_for(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=PortOptions(micro_batch=4, accumulation=2))

    with pytest.raises(BatchError) as caught:
        ported.compile(torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))

    assert caught.value.finding.message == "the batch has 6 rows, the options ask for 8"
    assert caught.value.finding.notes == ("rows = 4 micro-batch x 2 accumulation x 1 replicas x 1 device iterations",)


def test_without_a_micro_batch_in_the_options_the_batch_decides(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=PortOptions(accumulation=2))

    ported.compile(torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))

    assert ported.report().micro_batch == 3


def test_a_call_that_fits_neither_with_nor_without_label_says_what_forward_takes(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    with pytest.raises(PortingError) as caught:
        ported(torch.randn(6, 4), torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))

    assert caught.value.code == "L006"
    assert any("forward(input" in note for note in caught.value.finding.notes)


BAD_BATCHES = {
    "B012": (numpy.ones((8, 4), dtype="float32"), torch.zeros(8, dtype=torch.int64)),
    "B013": (torch.ones(8, 4), torch.full((8,), 3)),
    "C008": (torch.ones(0, 4), torch.zeros(0, dtype=torch.int64)),
    "L006": (torch.ones(8, 4), torch.zeros(8, dtype=torch.int64), torch.ones(8)),
}


@pytest.mark.parametrize(("code", "batch"), BAD_BATCHES.items(), ids=BAD_BATCHES)
def test_a_batch_that_no_training_can_use_is_a_finding_with_the_line(code, batch):
    model = nn.Linear(4, 3)
    before = model.weight.detach().clone()
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")

    with pytest.raises(PortingError) as caught:
        ported(*batch)

    assert caught.value.code == code
    assert caught.value.finding.place.file == __file__
    assert torch.equal(model.weight, before)


def test_a_label_out_of_range_leaves_the_port_usable():
    model = nn.Linear(4, 3)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")
    x, y = torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)
    ported(x, y)

    with pytest.raises(PortingError, match="B013"):
        ported(x, y + 7)

    assert torch.isfinite(ported(x, y)[1])
