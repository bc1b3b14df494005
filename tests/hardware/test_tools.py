"""Tools on the hardware path: proofs against plain training, Chainer's files."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

import porting
from tests.hardware.side_by_side import adam, batches, momentum_sgd, port, small_net


def test_compare_training_proves_a_port():
    model, twin, loss = small_net(), small_net(), nn.CrossEntropyLoss()
    settings = {"micro_batch": 4, "accumulation": 2, "keep_gradients": True, "output_mode": "all"}
    ported = port(model, loss, optimizer=adam(model), **settings)

    found = porting.compare_training(porting.PlainTraining(twin, loss, adam(twin)), ported, batches(3))

    assert found.holds, str(found)


def test_compare_training_proves_gradients_schedules_and_statistics():
    model, twin, loss = small_net(norm=True), small_net(norm=True), nn.CrossEntropyLoss()
    optimizer, of_twin = momentum_sgd(model), momentum_sgd(twin)
    ported = port(model, loss, optimizer=optimizer, micro_batch=8, keep_gradients=True)
    plain = porting.PlainTraining(twin, loss, of_twin, scheduler=StepLR(of_twin, 1))

    found = porting.compare_training(plain, ported, batches(3), scheduler=ported.scheduler(StepLR(optimizer, 1)))

    assert found.holds, str(found)


def test_compare_training_finds_a_port_that_trains_otherwise():
    model, twin, loss = small_net(), small_net(), nn.CrossEntropyLoss()
    ported = port(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.2), micro_batch=8)
    plain = porting.PlainTraining(twin, loss, torch.optim.SGD(twin.parameters(), lr=0.1))

    found = porting.compare_training(plain, ported, batches(3), gradients=False)

    assert not found.holds


def test_weights_of_chainer_can_be_loaded(tmp_path):
    model = nn.Sequential()
    model.add_module("l1", nn.Linear(4, 3))
    np.savez(tmp_path / "a.npz", **{"l1/W": np.zeros((3, 4), "f4"), "l1/b": np.ones(3, "f4")})

    porting.load_chainer_npz(str(tmp_path / "a.npz"), model)

    assert model.l1.bias.tolist() == [1.0, 1.0, 1.0]
