"""A reproduction that shows no difference, or does not run, is not shown."""

from __future__ import annotations

import pytest
import torch

from porting.verify.certificate import Location
from porting.verify.fault_location.reproduction import without_idle_reproduction

SHOWS = 'import torch\ntorch.manual_seed(3)\nprint("largest difference:", float(torch.ones(1)))\n'


@pytest.mark.parametrize("program", [SHOWS, SHOWS.replace("ones(1)", "tensor(float('nan'))"), 'print("the schedule")'])
def test_one_that_shows_something_stays(program, capsys):
    before = torch.get_rng_state()

    assert without_idle_reproduction(Location("forward", 1, reproduction=program)).reproduction == program
    assert capsys.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("program", ["", SHOWS.replace("ones", "zeros"), "import torch\ntorch.nothing()", "a b"])
def test_one_that_shows_nothing_or_fails_goes(program):
    location = Location("forward", 1, cause="the weights", reproduction=program)

    assert without_idle_reproduction(location) == Location("forward", 1, cause="the weights")
