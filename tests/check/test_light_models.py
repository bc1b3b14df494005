"""Models are built without memory for their weights; what cannot be is built as it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import models
from porting.check.light_models import LightTensors, make_light


def test_large_weights_have_no_memory_and_small_tensors_have():
    model = make_light(lambda: nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(4)))

    assert model[0].weight.is_meta
    assert model[0].weight.requires_grad
    assert not model[1].running_mean.is_meta


@pytest.mark.parametrize("family", ["resnet", "gpt", "bert", "vgg"])
def test_reference_models_are_the_same_without_memory(family):
    made = models.load(family)

    light = make_light(lambda: made.build(made.DEFAULT))
    meta = {name: (tensor.shape, tensor.dtype) for name, tensor in light.state_dict().items()}

    with torch.device("meta"):
        whole = made.build(made.DEFAULT)
    assert meta == {name: (tensor.shape, tensor.dtype) for name, tensor in whole.state_dict().items()}


def test_a_model_may_be_moved_and_cast():
    model = make_light(lambda: nn.Linear(512, 512).to("cpu").half().cpu())

    assert model.weight.is_meta
    assert model.weight.dtype == torch.float16


def test_a_program_that_reads_a_weight_gets_a_real_one():
    def make():
        layer = nn.Linear(512, 512)
        assert float(layer.weight.sum()) == pytest.approx(float(layer.weight.sum()))
        return layer

    assert not make_light(make).weight.is_meta


def test_numbers_are_read_from_small_tensors():
    rates = make_light(lambda: [rate.item() for rate in torch.linspace(0, 1, 3)])

    assert rates == [0.0, 0.5, 1.0]


def test_an_error_of_the_users_is_raised():
    def make():
        raise KeyError("config")

    with pytest.raises(KeyError, match="config"):
        make_light(make)


def test_nothing_is_light_outside_of_the_context():
    with LightTensors():
        pass

    assert not torch.empty(4096).is_meta
