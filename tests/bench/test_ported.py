"""The ported side trains or runs what eager does, and proves where."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortOptions
from porting.bench.measure import measure
from porting.bench.workloads import Workload
from porting.models import make_mlp

from .conftest import QUICK

REPLAY = PortOptions(engine="replay")


@pytest.mark.parametrize("device_iterations", [1, 4])
def test_inference_is_measured_as_well(device_iterations):
    options = REPLAY.replace(device_iterations=device_iterations)
    workload = Workload(make_mlp((6, 8, 10)), nn.CrossEntropyLoss(), torch.randn(8, 6), options=options, trains=False)

    report = measure(workload, settings=QUICK)

    assert report.parity.difference <= 1e-5
    assert report.device.is_proven
    assert "inference" in report.eager.described
    assert report.to_dict()["trains"] is False


def test_the_device_counts_every_call(report):
    assert report.device.is_proven
    assert report.device.calls_made == report.device.calls_counted == report.parity.num_steps + 2 * 2
