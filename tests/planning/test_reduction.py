"""Reduction: a small model with the operators and the kinds of layers of a large one, which can be proved."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import porting
from porting import PortingError
from porting.models import bert, gpt
from porting.planning import reduce_model


class Block(nn.Module):
    """A residual block; a `kind` of 1 has another operator, which no name of a layer tells."""

    def __init__(self, width=8, kind=0):
        super().__init__()
        self.linear, self.kind = nn.Linear(width, width), kind

    def forward(self, x):
        return x + (self.linear(x).sigmoid() if self.kind else self.linear(x).relu())


@dataclass(frozen=True)
class Sizes:
    width: int = 8
    num_heads: int = 4


class Chain(nn.Module):
    """Blocks that are gone through one by one, or by their numbers, or by numbers that stay."""

    def __init__(self, kinds=(0,) * 12, *, by="block", config=None):
        super().__init__()
        self.by, self.num_blocks = by, len(kinds)
        self.blocks = nn.ModuleList(Block(kind=kind) for kind in kinds)
        if config is not None:
            self.config = config

    def forward(self, x):
        if self.by == "block":
            for block in self.blocks:
                x = block(x)
            return x
        for number in range(len(self.blocks) if self.by == "number" else self.num_blocks):
            x = self.blocks[number](x)
        return x


class Sized(nn.Module):
    """A model that is made by its configuration."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.first, self.last = nn.Linear(8, config.width), nn.Linear(config.width, 8)
        self.blocks = nn.Sequential(*(Block(config.width) for _ in range(5)))

    def forward(self, x):
        return self.last(self.blocks(self.first(x)))


BATCH = torch.ones(2, 8), torch.ones(2, 8)


def reduce_chain(model, **how):
    return reduce_model(model, BATCH, nn.MSELoss(), **how)


def names_of(container):
    return [name for name, _layer in container.named_children()]


def refusal_of(call):
    with pytest.raises(PortingError) as caught:
        call()
    assert caught.value.code == "M004"
    return str(caught.value)


# -- depth -------------------------------------------------------------------------------------------------------------


def test_the_first_the_middle_and_the_last_layer_stay_with_names_and_values():
    model = Chain()

    reduced = reduce_chain(model)

    assert names_of(reduced.model.blocks) == ["0", "6", "11"]
    whole = model.state_dict()
    assert all(torch.equal(value, whole[name]) for name, value in reduced.model.state_dict().items())


def test_the_model_and_the_random_numbers_stay_as_they_are():
    model, before = Chain(), torch.random.get_rng_state()
    values = {name: value.clone() for name, value in model.state_dict().items()}

    reduced = reduce_chain(model)
    nn.init.zeros_(reduced.model.blocks.get_submodule("0").linear.weight)

    assert len(model.blocks) == 12
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_layers_that_are_called_by_their_numbers_are_numbered_anew():
    assert names_of(reduce_chain(Chain(by="number")).model.blocks) == ["0", "1", "2"]


def test_a_model_that_counts_on_all_of_its_layers_is_refused():
    assert "cannot run" in refusal_of(lambda: reduce_chain(Chain(by="fixed number")))


def test_an_operator_that_only_layers_left_out_have_is_refused_by_its_name():
    assert "sigmoid" in refusal_of(lambda: reduce_chain(Chain([0, 1, 0, 0, 0, 0, 0])))


def test_frozen_layers_are_a_chain_of_their_own():
    model = Chain()
    for block in model.blocks[:6]:
        block.requires_grad_(False)

    assert names_of(reduce_chain(model).model.blocks) == ["0", "3", "5", "6", "9", "11"]


def test_a_model_without_a_chain_keeps_all():
    reduced = reduce_chain(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8)))

    assert (reduced.left_out, reduced.num_weights[0]) == ({}, reduced.num_weights[1])


@settings(max_examples=15, deadline=None)
@given(choices=st.lists(st.booleans(), min_size=1, max_size=10))
def test_any_chain_of_layers_is_reduced_to_one_that_runs(choices):
    layers, width = [], 8
    for is_other in choices:
        size = (12 - width) if is_other else width
        layers.append(nn.Sequential(nn.Linear(width, size), nn.ReLU()))
        width = size
    layers.append(nn.Linear(width, 8))

    reduced = reduce_chain(nn.Sequential(*layers))

    assert reduced.model(BATCH[0]).shape == BATCH[0].shape
    assert len(reduced.model) + sum(map(len, reduced.left_out.values())) == len(layers)


def test_it_says_what_is_not_covered():
    text = str(reduce_chain(Chain()))

    assert "0, 6, 11 of 12 layers" in text
    assert "depth: 9 layers are left out" in text
    assert "memory and speed" in text


# -- values on no device -----------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.first.weight
        self.norm = nn.BatchNorm1d(8)
        self.scale = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        return self.last(self.norm(self.first(x))) * self.scale


def test_a_model_without_values_gets_some_and_shared_tensors_stay_shared():
    with torch.device("meta"):
        model = Tied()

    reduced = reduce_chain(model).model.eval()

    assert reduced.last.weight is reduced.first.weight
    assert torch.isfinite(reduced(BATCH[0])).all()
    assert not reduced.scale.requires_grad
    assert reduced.norm.running_var.eq(1).all()
    assert model.first.weight.is_meta


def test_drawn_values_are_those_of_the_seed():
    with torch.device("meta"):
        model = Tied()

    first, again, other = (reduce_chain(model, seed=seed).model.first.weight for seed in (0, 0, 1))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# -- width -------------------------------------------------------------------------------------------------------------


def test_the_sizes_of_a_configuration_are_divided():
    reduced = reduce_chain(Sized(Sizes(width=32)), divisor=4)

    assert reduced.sizes == {"width": (32, 8), "num_heads": (4, 1)}
    assert reduced.model.first.out_features == 8
    assert names_of(reduced.model.blocks) == ["0", "2", "4"]


def test_settings_that_are_no_sizes_stay():
    config = Sizes(width=32)
    vars(config)["note"] = "mine"

    made = reduce_chain(Sized(config), divisor=4).model.config

    assert (made.width, made.note, config.width) == (8, "mine", 32)


def test_heads_that_cannot_be_divided_become_narrow():
    assert reduce_chain(Sized(Sizes(width=32, num_heads=3)), divisor=2).sizes == {"width": (32, 16)}


def test_a_size_that_cannot_be_divided_is_refused():
    text = refusal_of(lambda: reduce_chain(Sized(Sizes(width=30)), divisor=4))

    assert "`width` is 30" in text
    assert "`divisor=1`" in text


def test_without_a_configuration_all_widths_stay_and_it_says_so():
    assert "all widths stay" in str(reduce_chain(Chain(), divisor=4))


def test_the_type_and_the_mode_of_the_model_stay():
    model = Sized(Sizes(width=32)).half().eval()

    reduced = reduce_model(model, tuple(tensor.half() for tensor in BATCH), nn.MSELoss(), divisor=2).model

    assert (reduced.first.weight.dtype, reduced.training) == (torch.float16, False)


# -- the proof ---------------------------------------------------------------------------------------------------------


def reduced_gpt():
    model = gpt.build("small", num_layers=8, width=32, num_heads=4, length=16)
    tokens = torch.randint(0, 256, (4, 16))
    return model, gpt.loss, (tokens, tokens), 1


def reduced_bert():
    model = bert.build("toy", num_layers=6, dropout=0.0)
    return model, bert.loss, bert.example_batch(bert.VARIANTS["toy"], batch_size=4), 1


def reduced_transformers_bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForSequenceClassification(config)
    return model, None, {"input_ids": torch.randint(0, 64, (4, 8)), "labels": torch.tensor([0, 1, 0, 1])}, 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [reduced_gpt, reduced_bert, reduced_transformers_bert])
def test_a_reduced_model_can_be_proved(make):
    model, loss, batch, divisor = make()

    reduced = reduce_model(model, batch, loss, divisor=divisor)

    assert sum(map(len, reduced.left_out.values())) > 0
    assert porting.verify(reduced.model, loss, batch, steps=3).holds
