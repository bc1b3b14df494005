"""The machine is described without torch, as torch itself describes it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from porting.executables import machine


def test_the_version_of_torch_is_the_one_that_torch_says():
    program = (
        "import sys; from porting.executables import machine;"
        "print(machine.collect_versions()['torch'], 'torch' in sys.modules)"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split() == [torch.__version__, "False"]


def test_the_processor_has_a_name():
    assert machine.describe_processor()["name"] != ""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor : 0\nmodel name : Epyc\nflags : fpu avx2 sse4_2 hypervisor\n\nmodel name : Xeon\n", "Epyc"),
        ("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\nFeatures : fp asimd\n", "0x41 0xd0c"),
    ],
)
def test_the_first_processor_of_a_machine_is_read(text, name, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "_PROCESSOR_FACTS", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "x86_64" if "Epyc" in text else "aarch64")

    facts = machine.describe_processor.__wrapped__()

    assert facts["name"] == name
    assert facts["instructions"] == (["avx2", "sse4_2"] if name == "Epyc" else ["asimd", "fp"])


def test_a_machine_without_facts_has_a_name_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_PROCESSOR_FACTS", tmp_path / "none")

    assert machine.describe_processor.__wrapped__()["name"] != ""


def test_the_compiler_is_the_one_that_the_environment_names(tmp_path, monkeypatch):
    program = tmp_path / "my-g++"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", f"{program} -m64")

    assert machine.find_compiler() == str(program)
    assert machine.collect_compiler_settings()["CXX"] == f"{program} -m64"


def test_settings_that_change_no_program_are_none(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")

    assert "TORCHINDUCTOR_CACHE_DIR" not in machine.collect_compiler_settings()
    assert machine.collect_compiler_settings()["TORCHINDUCTOR_MAX_AUTOTUNE"] == "1"


def test_a_processor_with_more_instructions_runs_what_another_was_compiled_for():
    theirs = {**machine.describe_processor(), "instructions": []}

    assert machine.list_machine_differences(machine.collect_versions(), theirs) == []


def test_differences_say_what_is_missing():
    theirs = {**machine.describe_processor(), "instructions": ["bcd"]}

    assert machine.list_machine_differences({**machine.collect_versions(), "torch": "1.0"}, theirs) == [
        f"it is for torch 1.0, this is {machine.collect_versions()['torch']}",
        "this processor lacks bcd",
    ]
