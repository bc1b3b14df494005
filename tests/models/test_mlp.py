"""Perceptrons have ReLU between their layers, and the sizes of the networks that they are named after."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from porting.models import make_mlp
from porting.models.mlp import VARIANTS, MLPConfig, build, example_batch, loss


def kinds_of(model: nn.Module) -> list:
    return [type(layer).__name__ for layer in model]


def test_an_mlp_has_relu_between_its_layers_only():
    assert kinds_of(make_mlp((3, 4, 4, 2))) == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]


def test_two_sizes_are_one_layer():
    assert kinds_of(make_mlp((3, 2))) == ["Linear"]


@pytest.mark.parametrize(
    ("variant", "sizes"),
    [("mushrooms", (22, 44, 44, 1)), ("mnist", (784, 1000, 1000, 10)), ("mnist_small", (784, 100, 100, 10))],
)
def test_variants_have_the_sizes_of_their_originals(variant, sizes):
    assert VARIANTS[variant] == MLPConfig(sizes)


def test_it_computes_what_the_formula_says():
    model = build("mushrooms")
    features, _labels = example_batch(VARIANTS["mushrooms"], batch_size=5)
    first, second, third = (model[index] for index in (0, 2, 4))

    hidden_1 = F.linear(features, first.weight, first.bias).clamp(min=0)
    hidden_2 = F.linear(hidden_1, second.weight, second.bias).clamp(min=0)

    torch.testing.assert_close(model(features), F.linear(hidden_2, third.weight, third.bias))


def test_lecuns_weights_have_the_variance_of_one_over_the_inputs_and_no_bias():
    first = build("mnist", lecun=True)[0]

    assert first.weight.var().item() == pytest.approx(1 / 784, rel=0.01)
    assert not first.bias.any()


@pytest.mark.parametrize("sizes", [(6, 5, 3), (6, 5, 1)])
def test_the_example_batch_of_a_configuration_trains_its_model(sizes):
    inputs, labels = example_batch(MLPConfig(sizes), batch_size=4)

    loss(build(sizes=sizes)(inputs), labels).backward()


def test_a_single_logit_gets_the_binary_loss():
    assert loss(torch.zeros(2, 1), torch.ones(2, 1)).item() == pytest.approx(0.6931, abs=1e-4)


def test_whole_numbers_for_a_single_logit_are_refused_as_they_would_train_nothing():
    with pytest.raises(ValueError, match=r"0\.0 and 1\.0 in a column, not torch.int64"):
        loss(torch.zeros(2, 1), torch.tensor([0, 0]))
