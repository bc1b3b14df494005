"""What is told of calls whose numbers are none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortingWarning, PortOptions, to_ipu

NAN = float("nan")


def ported_with(**options):
    model = nn.Linear(2, 2)
    return to_ipu(model, nn.MSELoss(), options=PortOptions(**options), device="sim")


def test_the_first_loss_that_is_no_number_is_told_once():
    ported = ported_with()
    ported(torch.ones(1, 2), torch.ones(1, 2))

    with pytest.warns(PortingWarning, match="the loss is nan in step 2"):
        ported(torch.full((1, 2), NAN), torch.ones(1, 2))
    ported(torch.full((1, 2), NAN), torch.ones(1, 2))

    assert [finding.code for finding in ported.report().findings].count("L008") == 1


def test_of_several_steps_a_call_all_are_named():
    ported = ported_with(device_iterations=2)

    with pytest.warns(PortingWarning, match=r"call 1 \(steps 1 to 2\)"):
        ported(torch.full((2, 2), NAN), torch.ones(2, 2))


def test_outputs_of_an_inference_are_looked_at():
    inference = ported_with().inference()

    with pytest.warns(PortingWarning, match="an output of the .* is NaN in call 1"):
        inference(torch.full((1, 2), NAN))
