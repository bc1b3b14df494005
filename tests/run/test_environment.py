"""The environment of a simulated program leads every Python to the simulator, and can be taken back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import porting.run
from porting.run import simulated_environment, vendor_environment

BOOTSTRAP = str(Path(porting.run.__file__).parent / "bootstrap")


def test_the_bootstrap_comes_before_the_programs_own_folders():
    changed = simulated_environment({"PYTHONPATH": os.pathsep.join(["a", "b"])})

    assert changed["PYTHONPATH"].split(os.pathsep) == [BOOTSTRAP, "a", "b"]


def test_a_simulated_program_within_another_adds_nothing():
    once = simulated_environment({})

    assert simulated_environment(once) == once


@pytest.mark.parametrize(("given", "found"), [({}, "1"), ({"PORTING_SIM_HARDWARE": "0"}, "0")])
def test_simulated_devices_count_as_hardware_unless_somebody_said_otherwise(given, found):
    assert simulated_environment(given)["PORTING_SIM_HARDWARE"] == found


def test_for_hardware_the_bootstrap_is_taken_out_again():
    inner = simulated_environment({"PYTHONPATH": "mine"})

    assert vendor_environment(inner)["PYTHONPATH"] == "mine"


def test_the_given_environment_is_not_changed():
    given = {"PYTHONPATH": "mine"}

    simulated_environment(given)

    assert given == {"PYTHONPATH": "mine"}
