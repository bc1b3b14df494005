"""A loss that is no number any more is told with its step."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import PortingWarning


def log_loss(output, label):
    return torch.log(label).mean() + output.mean()


def make_ported(**options):
    return to_ipu(nn.Linear(4, 1), log_loss, device="sim", options=PortOptions(**options))


GOOD = torch.ones(4, 4), torch.ones(4, 1)
BAD = torch.ones(4, 4), torch.zeros(4, 1)


def codes_of(caught):
    return [warning.message.finding.code for warning in caught if isinstance(warning.message, PortingWarning)]


def test_the_first_loss_that_is_no_number_is_told_once_with_its_step():
    ported = make_ported()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in (GOOD, GOOD, BAD, BAD):
            ported(*batch)

    assert codes_of(caught) == ["L008"]
    assert "the loss is -inf in step 3" in str(caught[-1].message)


def test_the_report_has_the_finding_and_the_call():
    ported = make_ported()

    with pytest.warns(PortingWarning):
        ported(*BAD)

    assert ported.report().first_call_not_finite == 1
    assert "the loss is -inf in step 1" in str(ported.report())


def test_a_call_of_several_steps_names_them():
    ported = make_ported(device_iterations=2, output_mode="all")
    ported(*GOOD)

    with pytest.warns(PortingWarning, match=r"call 2 \(steps 3 to 4\)"):
        ported(*BAD)


def test_finite_losses_are_no_finding():
    ported = make_ported()
    ported(*GOOD)

    assert "L008" not in [finding.code for finding in ported.report().findings]
    assert ported.report().first_call_not_finite is None


def test_outputs_of_inference_that_are_nan_are_told():
    ported = to_ipu(nn.Linear(4, 1), nn.MSELoss(), device="sim")
    inference = ported.inference()
    inference(GOOD[0])

    with pytest.warns(PortingWarning, match="an output of the inference is NaN in call 2"):
        inference(torch.full((4, 4), float("nan")))
