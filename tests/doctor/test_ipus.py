"""The tools of IPUs are asked where they are; what they say, or that they say nothing, is told."""

from __future__ import annotations

import pytest

from porting.doctor import ipus
from porting.doctor.ipus import probe_hardware

TWO_DEVICES = """\
-+- Id:  [0], target:    [PCIe], PCI Domain: [0000:1a:00.0]
-+- Id:  [1], target:    [PCIe], PCI Domain: [0000:1b:00.0]
-+- Id:  [2], target: [Multi IPU]
 |--- PCIe Id: [0], DNC Id: [0], PCI Domain: [0000:1a:00.0]
"""

MONITOR = """\
+---------------+---------------------------------------------------------------------------------+
|  gc-monitor   |  Partition: p16 [active] has 16 reconfigurable IPUs                             |
+-------------------------------------------------------+------------------------+-----------------+
|             Attached processes in partition p16       |          IPU           |      Board      |
+--------+------------------------+--------+------------+----+----------+--------+--------+--------+
|  PID   |        Command         |  Time  |    User    | ID |  Clock   |  Temp  |  Temp  | Power  |
+--------+------------------------+--------+------------+----+----------+--------+--------+--------+
|  4711  |       python train.py  |  12s   |    ada     | 0  | 1330MHz  | 24.2 C | 21.1 C | 92.3 W |
+--------+------------------------+--------+------------+----+----------+--------+--------+--------+
"""


def probe(name, **keywords):
    found = probe_hardware(**keywords)
    return found, next(probe for probe in found.probes if probe.name == name)


def say(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def test_a_machine_without_ipus_has_nothing_to_put_right(machine):
    found = probe_hardware(poptorch_version="")

    assert [probe.finding for probe in found.probes] == [None] * 5
    assert found.num_devices == 0


def test_devices_are_counted_each_once(machine):
    machine.add_program(
        "gc-info", f'if [ "$1" = -l ]; then\n{say(TWO_DEVICES)}\nelse\necho "Driver Version: 1.0.55"\nfi'
    )

    found, devices = probe("IPUs")

    assert found.num_devices == 2
    assert devices.found == "2 listed by gc-info"
    assert probe("IPU driver")[1].found == "version 1.0.55"


def test_a_tool_that_lists_nothing_is_a_finding(machine):
    machine.add_program("gc-info", "echo 'No devices available'")

    _found, devices = probe("IPUs")

    assert devices.finding.code == "X014"
    assert devices.finding.notes == ("No devices available",)


@pytest.mark.parametrize("tool", ["gc-info", "gc-monitor"])
@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo cannot connect; exit 1", "ended with status 1"),
        ("sleep 60", "gave no answer in 0.5 s"),
        ("kill -SEGV $$", "was ended by SIGSEGV"),
    ],
)
def test_a_tool_that_fails_or_hangs_is_a_finding(machine, monkeypatch, tool, script, fault):
    monkeypatch.setattr(ipus, "_TOOL_SECONDS", 0.5 if script == "sleep 60" else 20.0)
    machine.add_program(tool, script)

    _found, asked = probe("IPUs" if tool == "gc-info" else "use of the IPUs")

    assert asked.finding.code == "X014"
    assert asked.finding.message == f"`{tool}` {fault}"


def test_nobody_on_the_ipus_is_no_finding(machine):
    machine.add_program("gc-monitor", say("| No attached processes in partition p16 |"))

    assert probe("use of the IPUs")[1].found == "nobody is attached"


def test_processes_on_the_ipus_are_a_warning(machine):
    machine.add_program("gc-monitor", say(MONITOR))

    _found, users = probe("use of the IPUs")

    assert users.state == "warning"
    assert users.finding.message == "the IPUs are used by `python train.py (4711)`"


def test_an_sdk_of_the_version_of_poptorch_is_right(machine, tmp_path):
    machine.set(POPLAR_SDK_ENABLED=tmp_path)
    machine.add_program("popc", "echo 'POPLAR version 3.4.0 (0a785c2cb5)'")

    found, sdk = probe("Poplar SDK", poptorch_version="3.4.0")

    assert (sdk.finding, sdk.found, found.sdk_version) == (None, "3.4.0", "3.4.0")


@pytest.mark.parametrize(
    ("variables", "popc", "poptorch", "message"),
    [
        ({}, None, "3.4.0", "PopTorch is installed, and no Poplar SDK is enabled"),
        ({"POPLAR_SDK_ENABLED": "/no/such/folder"}, None, "", "names a folder that is not there"),
        ({"POPLAR_SDK_ENABLED": "/"}, None, "", "`popc` is not on PATH"),
        ({}, "exit 127", "", "`popc --version` ended with status 127"),
        ({}, "echo hello", "", "`popc --version` names no version"),
        ({}, "echo 'POPLAR version 3.3.0'", "3.4.0+fa6f98", "the Poplar SDK is 3.3, and PopTorch is of SDK 3.4"),
    ],
)
def test_an_sdk_that_is_not_as_poptorch_needs_it_is_a_finding(machine, variables, popc, poptorch, message):
    machine.set(**variables)
    if popc is not None:
        machine.add_program("popc", popc)

    _found, sdk = probe("Poplar SDK", poptorch_version=poptorch)

    assert sdk.finding.code == "X013"
    assert message in sdk.finding.message


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"IPUOF_CONFIG_PATH": "/no/such/file"}, "names a file that is not there"),
        ({"IPUOF_VIPU_API_HOST": "controller"}, "IPUOF_VIPU_API_PARTITION_ID is not"),
        ({"IPUOF_VIPU_API_PARTITION_ID": "mine"}, "IPUOF_VIPU_API_HOST is not"),
        (
            {"IPUOF_VIPU_API_HOST": "c", "IPUOF_VIPU_API_PARTITION_ID": "p", "IPUOF_VIPU_API_PORT": "http"},
            "which is no number",
        ),
    ],
)
def test_variables_that_do_not_belong_together_are_a_finding(machine, variables, message):
    machine.set(**variables)

    _found, partition = probe("partition")

    assert partition.finding.code == "X015"
    assert message in partition.finding.message


@pytest.mark.parametrize(
    "variables",
    [
        {"IPUOF_CONFIG_PATH": __file__},
        {"IPUOF_VIPU_API_HOST": "c", "IPUOF_VIPU_API_PARTITION_ID": "p", "IPUOF_VIPU_API_PORT": "8090"},
        {"IPUOF_LOG_LEVEL": "WARN"},
    ],
)
def test_variables_that_belong_together_are_right(machine, variables):
    machine.set(**variables)

    assert probe("partition")[1].finding is None
