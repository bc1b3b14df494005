"""Values of the device are told from those of the host."""

from __future__ import annotations

import torch

from porting import to_ipu
from porting.remedies.device_values import is_on_device


def test_values_of_the_host_are_none_of_the_device():
    assert not is_on_device([torch.ones(2), {"x": (None, 3)}])


def test_values_in_a_capture_are_those_of_the_device():
    seen = []

    class Look(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            seen.append((is_on_device({"y": [y]}), is_on_device(3)))
            return y

    to_ipu(Look(2, 2), device="sim").inference()(torch.ones(1, 2))

    assert (True, False) in seen
