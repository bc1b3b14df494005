"""Lazy modules get their parameters, and nothing else of the model changes."""

from __future__ import annotations

import torch
from torch import nn

from porting.module_attributes import materialise_lazy_modules


def test_the_modes_and_statistics_stay_as_they_were():
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Dropout())
    model[2].eval()

    materialise_lazy_modules(model, [torch.ones(3, 4)], {})

    assert model[0].weight.shape == (8, 4)
    assert [module.training for module in model] == [True, True, False]
    assert torch.equal(model[1].running_mean, torch.zeros(8))


def test_a_model_without_lazy_modules_is_not_run():
    class Refusing(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("it ran")

    materialise_lazy_modules(Refusing(2, 2), [torch.ones(1, 2)], {})
