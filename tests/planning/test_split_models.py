"""Stages that plans find for models: they train as one IPU does, also where weights are used in several places."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting
from porting import PortOptions
from porting.diagnostics import OptionError

X = torch.linspace(-1, 1, 32).reshape(2, 16)
Y = torch.tensor([0, 1])
TOKENS = torch.arange(12).reshape(2, 6)


class Cells(nn.Module):
    """Two cells that `forward` calls in turn, as often as the features say."""

    def __init__(self):
        super().__init__()
        self.enter, self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.enter(x)
        for _turn in range(x.shape[1] // 4):
            x = torch.tanh(self.second(torch.relu(self.first(x))))
        return self.head(x)


class OneBlock(nn.Module):
    """A block that is all of the layers, under several names."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(16, 16)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU())] * 4)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Thrice(nn.Module):
    """An embedding that enters the encoder and the decoder, and is the head as well."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(12, 16)
        self.encoder = nn.Sequential(*(nn.Linear(16, 16) for _layer in range(4)))
        self.decoder = nn.Sequential(*(nn.Linear(16, 16) for _layer in range(4)))
        self.head = nn.Linear(16, 12, bias=False)
        self.head.weight = self.shared.weight

    def forward(self, tokens):
        return self.head(self.decoder(self.encoder(self.shared(tokens)) + self.shared(tokens))).flatten(0, 1)


class Experts(nn.Module):
    """A mixture of experts, all of which compute."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _expert in range(4)
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        shares = torch.softmax(self.gate(x), dim=-1)
        return self.head(sum(shares[:, at : at + 1] * expert(x) for at, expert in enumerate(self.experts)))


class Named(nn.Module):
    """A model that returns a dictionary."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return {"hidden": hidden, "logits": self.head(hidden)}


def cross_entropy(output, labels):
    return nn.functional.cross_entropy(output["logits"] if isinstance(output, dict) else output, labels.flatten())


def plan_of(make, batch, *, ipus, accumulation=16, **settings):
    with torch.device("meta"):
        model = make()
    options = PortOptions(micro_batch=2, accumulation=accumulation)
    optimizer = torch.optim.Adam(model.parameters())
    return porting.plan(model, cross_entropy, batch, optimizer, options, ipus=ipus, **settings)


def train(make, batch, **options):
    """Train three steps and return the losses."""
    torch.manual_seed(0)
    model = make()
    options = PortOptions(micro_batch=2, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ported = porting.to_ipu(model, cross_entropy, optimizer=optimizer, options=options, device="sim", returns=["loss"])
    whole = [torch.cat([part] * options.accumulation) for part in batch]
    return [ported(*whole)[0].item() for _step in range(3)]


CASES = {
    "cells in turn, 2": (Cells, (X, Y), 2),
    "cells in turn, 3": (Cells, (X, Y), 3),
    "one block": (OneBlock, (X, Y), 3),
    "tied three times": (Thrice, (TOKENS, TOKENS), 2),
    "tied three times, 4": (Thrice, (TOKENS, TOKENS), 4),
    "experts": (Experts, (X, Y), 3),
    "a dictionary": (Named, (X, Y), 2),
}


@pytest.mark.parametrize(("make", "batch", "ipus"), CASES.values(), ids=CASES)
def test_a_models_stages_train_as_one_ipu_does(make, batch, ipus):
    planned = plan_of(make, batch, ipus=ipus, accumulation=1)
    accumulation = planned.options.accumulation

    losses = train(make, batch, pipeline=planned, accumulation=accumulation)

    assert losses == train(make, batch, accumulation=accumulation)
    assert len(planned.ipus) == ipus
    assert accumulation >= 2 * len(planned.options.stage_ipus) - 1


def test_cells_in_turn_train_as_on_one_ipu_where_each_call_is_a_stage():
    planned = plan_of(Cells, (X, Y), ipus=2, accumulation=100)
    accumulation = 2 * len(planned.options.stage_ipus) - 1

    losses = train(Cells, (X, Y), pipeline=planned, accumulation=accumulation)

    assert losses == train(Cells, (X, Y), accumulation=accumulation)
    assert len(planned.options.stage_ipus) == 8


def test_cells_in_turn_have_an_ipu_each_and_a_stage_for_each_call():
    planned = plan_of(Cells, (X, Y), ipus=2, accumulation=100)

    assert list(planned.stages.items())[:3] == [("second#1", 1), ("first#2", 0), ("second#2", 1)]
    assert len(planned.stages) == 7


def test_one_block_stays_on_one_ipu():
    planned = plan_of(OneBlock, (X, Y), ipus=2)

    assert set(planned.stages) <= {"layers.0#1", "head"}


def test_the_pipeline_comes_back_to_a_weight_that_is_tied_three_times():
    planned = plan_of(Thrice, (TOKENS, TOKENS), ipus=3)
    ipus = planned.options.stage_ipus

    assert ipus[0] == ipus[-1] == 0
    assert ipus.count(1) == ipus.count(2) == 1


def test_a_model_that_is_one_module_cannot_be_cut():
    with pytest.raises(OptionError, match="cannot be cut into stages on 2 IPUs"):
        plan_of(lambda: nn.Linear(16, 4), (X, Y), ipus=2)


def test_a_machine_of_one_ipu_has_no_stages():
    planned = plan_of(Cells, (X, Y), ipus=None, machine="gc200")

    assert (planned.stages, planned.machine.num_chips, planned.verdict) == ({}, 1, "fits")


def wide_cells():
    """Make three cells that are called twice, of which an IPU has room for one."""

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList(nn.Linear(5120, 5120) for _cell in range(3))

        def forward(self, x):
            for _turn in range(2):
                for cell in self.cells:
                    x = torch.tanh(cell(x))
            return x

    return Wide()


def test_cells_that_do_not_fit_together_are_found_a_machine():
    planned = plan_of(wide_cells, (torch.zeros(2, 5120), Y), ipus=None, machine="bow-pod4")

    assert planned.verdict == "fits"
    assert planned.options.stage_ipus == (0, 1, 2, 0, 1, 2)


@pytest.mark.slow
def test_calls_of_cells_are_planned_by_auto_without_editing_the_model():
    model = wide_cells()
    options = PortOptions(micro_batch=2, accumulation=11, pipeline="auto")
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.zeros(22, 5120), torch.zeros(22, dtype=torch.int64)

    ported = porting.to_ipu(model, cross_entropy, optimizer=optimizer, options=options, device="sim", example=batch)

    assert any("#" in stage for stage in ported.options.stages)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize("ipus", [2, 3])
def test_a_t5_has_its_shared_embedding_on_one_ipu_and_trains_as_on_one(ipus):
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=300, decoder_start_token_id=0, dropout_rate=0
    )
    ids = torch.arange(72).reshape(9, 8)

    def train_t5(**options):
        torch.manual_seed(0)
        model = transformers.T5ForConditionalGeneration(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        settings = {"optimizer": optimizer, "options": PortOptions(accumulation=9, **options), "device": "sim"}
        ported = porting.to_ipu(model, None, **settings)
        return [ported(input_ids=ids, labels=ids)["loss"].tolist() for _step in range(2)]

    with torch.device("meta"):
        model = transformers.T5ForConditionalGeneration(config)
    example = {"input_ids": ids[:1], "labels": ids[:1]}
    planned = porting.plan(model, None, example, torch.optim.AdamW(model.parameters()), ipus=ipus)

    assert planned.options.stage_ipus[-1] == 0
    assert train_t5(pipeline=planned) == train_t5()
