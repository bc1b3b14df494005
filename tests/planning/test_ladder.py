"""Each rung of the ladder is proposed where it is of use, and brings what it promises."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortOptions, memory_report, plan
from tests.planning.gpt_ports import TiedHead, ported_gpt, total


def test_a_smaller_micro_batch_of_inference_has_nothing_to_accumulate():
    ported, (tokens, _labels) = ported_gpt()
    remedy = memory_report(ported, (tokens[:4],), mode="inference").remedies[1]

    assert (remedy.change, remedy.options) == ("`micro_batch=1`", {"micro_batch": 1})


def test_a_head_that_has_the_embeddings_weight_can_be_serialized():
    batch = torch.zeros(64, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)

    whole = plan(TiedHead(), None, batch, machine="gc2", ipus=1)
    parted = plan(TiedHead(), None, batch, None, PortOptions(serialize={"head": 2}), "gc2", ipus=1)

    assert [list(remedy.options["serialize"]) for remedy in whole.remedies if remedy.name == "serialized product"] == [
        ["head"]
    ]
    assert parted.ipus[0].temporary_bytes < whole.ipus[0].temporary_bytes


def test_a_scalar_parameter_is_no_product_to_serialize():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(x) * self.scale

    planned = plan(Scaled(), torch.nn.MSELoss(), (torch.zeros(4, 8), torch.zeros(4, 8)))

    assert planned.verdict == "fits"


def test_a_model_in_half_precision_is_not_told_to_halve_it():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(20_000, 20_000)).half()
    batch = torch.zeros(2, 20_000, dtype=torch.float16), torch.zeros(2, dtype=torch.int64)

    remedies = plan(model, nn.CrossEntropyLoss(), batch, torch.optim.Adam(model.parameters()), ipus=1).remedies

    assert remedies
    assert "float16" not in [remedy.name for remedy in remedies]


class Returning(nn.Module):
    """A model whose outputs are much larger than its inputs."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(1000, 64), nn.Linear(64, 400_000)

    def forward(self, words):
        return self.head(self.words(words))


def test_outputs_that_hold_the_links_up_are_left_on_the_device():
    with torch.device("meta"):
        model = Returning()
    batch = torch.zeros(64, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)
    options = PortOptions(micro_batch=64, accumulation=32, output_mode="all")

    first = plan(model, nn.CrossEntropyLoss(), batch, None, options, ipus=1).remedies[0]

    assert (first.name, first.options["output_mode"]) == ("output mode", "final")
    assert first.speed > 0


def test_a_table_of_words_is_looked_up_in_parts():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(2_000_000, 64), nn.Linear(64, 2)

        def forward(self, words):
            return self.head(self.words(words))

    with torch.device("meta"):
        model = Words()
    batch = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)

    def planned(**options):
        return plan(model, nn.CrossEntropyLoss(), batch, None, PortOptions(**options), ipus=1)

    (remedy,) = (remedy for remedy in planned().remedies if remedy.name == "serialized lookup")

    assert planned(**remedy.options).bytes_per_ipu == pytest.approx(remedy.alone_bytes, rel=0.01)


def test_replicas_share_the_state_before_it_leaves_the_chip():
    ported = ported_gpt(batch=8, layers=8, width=512, length=256, replicas=2)
    names = [remedy.name for remedy in total(ported).remedies]

    assert names.index("state in shards") < names.index("state off chip")


def test_a_tied_table_is_not_looked_up_in_parts():
    batch = torch.zeros(64, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)

    whole = plan(TiedHead(), None, batch, machine="gc2", ipus=1)
    parted = plan(TiedHead(), None, batch, None, PortOptions(serialize={"words": 2}), "gc2", ipus=1)

    assert "serialized lookup" not in [remedy.name for remedy in whole.remedies]
    assert parted.bytes_per_ipu == whole.bytes_per_ipu
