"""The verdict says in one line whether a machine is fit, and what to begin with."""

from __future__ import annotations

import json

import pytest

from porting.diagnostics import Finding
from porting.doctor.examination import Examination, examine_machine
from porting.doctor.probes import Probe
from porting.doctor.software import probe_software
from porting.support.torch_versions import list_tested

from .test_software import POPTORCH, PRODUCT, TORCH


def examine(*codes, has_ipus=False):
    probes = tuple(Probe(f"part {index}", "something", "else", Finding(code)) for index, code in enumerate(codes))
    abilities = (("porting check", True, "no torch"), ("training on IPUs", has_ipus, "no PopTorch"))
    return Examination((*probes, Probe("torch", "2.6", "2.13")), abilities, "Linux")


@pytest.mark.parametrize(
    ("codes", "has_ipus", "verdict"),
    [
        ((), True, "ready for IPUs: 1 things looked at, no finding"),
        (("D002",), False, "ready for work without IPUs: 2 things looked at, 1 note"),
        (
            ("X016",),
            True,
            "ready for IPUs, with something to put right: 2 things looked at, 1 warning; "
            "begin with X016: the disk of the cache has little room left",
        ),
        (
            ("X016", "X011", "X010"),
            False,
            "not ready: 4 things looked at, 2 errors, 1 warning; "
            "begin with X011: a package that everything needs cannot be used",
        ),
    ],
)
def test_the_verdict_is_one_line(codes, has_ipus, verdict):
    examination = examine(*codes, has_ipus=has_ipus)

    assert examination.verdict == verdict
    assert str(examination).splitlines()[-1] == verdict


@pytest.mark.parametrize(("codes", "is_well"), [((), True), (("D002",), True), (("X016",), False), (("X011",), False)])
def test_notes_are_nothing_to_put_right(codes, is_well):
    assert examine(*codes).is_well is is_well


def test_the_text_shows_probes_findings_and_what_works():
    text = str(examine("X016"))

    assert "warning  part 0     else   something" in text
    assert "warning[X016]: the disk of the cache has little room left" in text
    assert "  yes  porting check     no torch" in text


@pytest.fixture
def small_machine(machine):
    """A machine whose libraries are quickly imported."""
    machine.add_package("torch", TORCH.format(version="2.13.0", product=PRODUCT))
    machine.add_package("numpy", "__version__ = '1.2'")
    return machine


def test_a_machine_without_ipus_is_told_what_works(small_machine):
    examination = examine_machine()

    works = {name: does for name, does, _why in examination.abilities}
    assert works["training on IPUs"] is False
    assert works["capture, the simulator, recipes, porting check of a model"] is True
    assert works["compiled training on the CPU"] is False  # PATH has no compiler
    assert {finding.code for finding in examination.findings} >= {"D002", "X021"}


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.6.0", "torch 2.6.0, tested"),
        ("2.6.1+cpu", "torch 2.6.1+cpu; known from 2.6.0"),
        ("99.0.0", f"torch 99.0.0, newer than all that were tested; known from {list_tested()[-1].version}"),
    ],
)
def test_it_is_said_from_which_tested_version_it_is_known_what_works(small_machine, version, why):
    small_machine.add_package("torch", TORCH.format(version=version, product=PRODUCT))

    whys = {name: why for name, _does, why in examine_machine().abilities}

    assert whys["capture, the simulator, recipes, porting check of a model"] == why


@pytest.mark.parametrize(("version", "compiles"), [("2.8.0", False), ("2.13.0", True)])
def test_compiled_training_needs_a_torch_that_was_seen_to_compile(small_machine, version, compiles):
    small_machine.add_package("torch", TORCH.format(version=version, product=PRODUCT))

    assert probe_software().can_compile is compiles


def test_where_steps_are_not_compiled_it_is_said_that_ports_train_by_replay(small_machine):
    small_machine.add_package("torch", TORCH.format(version="2.6.0", product=PRODUCT))

    whys = {name: why for name, _does, why in examine_machine().abilities}

    assert whys["compiled training on the CPU"] == "torch 2.6.0, tested: ports train by replay"


def test_a_machine_with_ipus_is_told_so(small_machine, tmp_path):
    small_machine.set(POPLAR_SDK_ENABLED=tmp_path)
    small_machine.add_package("poptorch", POPTORCH.format(available=True))
    small_machine.add_program("popc", "echo 'POPLAR version 3.4.0'")
    small_machine.add_program("gc-info", "echo '-+- Id: [0], target: [PCIe], PCI Domain: [0000:1a:00.0]'")
    small_machine.add_program("gc-monitor", "echo '| No attached processes |'")

    examination = examine_machine()

    assert examination.abilities[-1] == ("training on IPUs", True, "PopTorch 3.4.0, 1 IPUs")
    assert not {finding.code for finding in examination.findings} & {"X012", "X013", "X014", "X015", "D002"}


def test_the_data_are_redacted(small_machine, monkeypatch):
    small_machine.set(USER="alovelace", IPUOF_CONFIG_PATH="/home/alovelace/.ipuof.conf.d/p16.conf")

    text = json.dumps(examine_machine().to_dict())

    assert "alovelace" not in text
    assert "p16.conf" in text
