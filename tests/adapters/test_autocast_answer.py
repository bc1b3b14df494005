from __future__ import annotations

import pytest
import torch

from porting.adapters.autocast_answer import autocast_answered
from porting.diagnostics import CaptureError


@pytest.mark.parametrize("arguments", [{"enabled": False}, {"dtype": torch.bfloat16, "enabled": False}])
def test_a_model_may_keep_a_part_out_of_autocast(arguments):
    with autocast_answered(), torch.autocast(device_type="ipu", **arguments):
        assert not torch.is_autocast_enabled("cpu")


def test_autocast_for_the_device_is_refused_with_the_line():
    with pytest.raises(CaptureError) as caught, autocast_answered():
        torch.autocast("ipu")

    assert caught.value.code == "P001"
    assert caught.value.finding.place.file == __file__


def test_other_devices_get_what_they_ask_for_and_torch_is_as_before():
    before = torch.autocast.__init__

    with autocast_answered(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16

    assert torch.autocast.__init__ is before
