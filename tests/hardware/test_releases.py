"""What the two releases of PopTorch do differently: a parameter with a value for each group of replicas stays frozen.

Their Python halves differ in the one statement that makes such a parameter while the step is compiled.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.support.poptorch_releases import TESTED_RELEASES, loses_freezing, name_release
from tests.hardware.side_by_side import assert_code, one_batch, port

poptorch = pytest.importorskip("poptorch", reason="the vendor's front end")

loses = pytest.mark.skipif(not loses_freezing(poptorch.__version__), reason="this PopTorch keeps `requires_grad`")
keeps = pytest.mark.skipif(loses_freezing(poptorch.__version__), reason="this PopTorch loses `requires_grad`")


class Scaled(nn.Module):
    """A classifier whose input is scaled, in each of two replicas by another parameter; what a trace sees is kept."""

    def __init__(self, *, trains_scale):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2, 4), requires_grad=trains_scale)
        self.head = nn.Linear(4, 3)
        self.seen = []

    def forward(self, x):
        self.seen.append(self.scale.requires_grad)
        return self.head(x * self.scale)


@pytest.fixture
def grouped(stand_in, monkeypatch):
    """Let the executors of ports give each replica a scale of its own, which the stand-in compiles and cannot load."""
    monkeypatch.setattr(stand_in, "copyWeightsToDevice_impl", lambda *_weights: None)
    make = poptorch.trainingModel

    def trainingModel(model, options, optimizer):  # noqa: N802 - the vendor's name
        executor = make(model, options, optimizer)
        executor.per_replica_params["scale"] = (
            poptorch.CommGroupType.NoGrouping,
            1,
            poptorch.VariableRetrievalMode.OnePerGroup,
        )
        return executor

    monkeypatch.setattr(poptorch, "trainingModel", trainingModel)


def compiled(*, trains_scale):
    model = Scaled(trains_scale=trains_scale)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    port(model, nn.CrossEntropyLoss(), optimizer=optimizer, micro_batch=4, replicas=2).compile(*one_batch())
    return model


def test_the_release_is_one_that_is_tested():
    assert name_release(poptorch.__version__) in TESTED_RELEASES


@loses
def test_a_frozen_parameter_of_each_replica_is_refused(grouped):
    assert_code("D021", lambda: compiled(trains_scale=False))


@keeps
def test_a_frozen_parameter_of_each_replica_stays_frozen(grouped):
    assert compiled(trains_scale=False).seen == [False]


def test_a_trained_parameter_of_each_replica_is_compiled(grouped):
    assert compiled(trains_scale=True).seen == [True]
