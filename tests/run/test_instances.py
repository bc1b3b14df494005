"""Instances of a program know their places, and none outlives the failure of another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import porting.run
from porting.diagnostics import DeviceError, OptionError
from porting.run import InstancePlan, is_simulated, run_instances, simulated_environment, vendor_environment

PLAN = InstancePlan(num_instances=2, num_replicas=4)

WRITE_PID = """
own = os.path.join(sys.argv[1], str(index))
with open(own + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(own + ".new", own)
"""
FAIL_WHEN_THE_OTHER_IS_THERE = """
while not os.path.exists(os.path.join(sys.argv[1], "0")):
    time.sleep(0.01)
index and sys.exit(1)
time.sleep(60)
"""


@pytest.fixture
def program(tmp_path):
    """Give a function that makes a program, in which `index` is the instance's, and returns the command to run it."""

    def make(source):
        path = tmp_path / "program.py"
        path.write_text(f"import os, sys, time, signal\nindex = int(os.environ['OMPI_COMM_WORLD_RANK'])\n{source}")
        return [sys.executable, str(path), str(tmp_path)]

    return make


def run(command):
    return run_instances(command, PLAN, os.environ)


def test_each_instance_knows_its_place(program, tmp_path):
    names = ["OMPI_COMM_WORLD_SIZE", *(name for name in PLAN.variables(0) if name.startswith("POPDIST_"))]
    command = program(
        f"import json\nwith open(sys.argv[1] + f'/{{index}}', 'w') as file:\n"
        f"    json.dump({{name: os.environ[name] for name in {names}}}, file)\n"
    )

    assert run(command) == 0

    first, second = (json.loads((tmp_path / str(index)).read_text()) for index in range(2))
    assert first == {
        "OMPI_COMM_WORLD_SIZE": "2",
        "POPDIST_LOCAL_INSTANCE_INDEX": "0",
        "POPDIST_NUM_TOTAL_REPLICAS": "4",
        "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_REPLICA_INDEX_OFFSET": "0",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
    }
    assert second == {**first, "POPDIST_LOCAL_INSTANCE_INDEX": "1", "POPDIST_REPLICA_INDEX_OFFSET": "2"}


def test_the_ipus_of_a_replica_are_said_if_they_are_known():
    assert InstancePlan(2, 2, ipus_per_replica=4).variables(0)["POPDIST_NUM_IPUS_PER_REPLICA"] == "4"


def test_all_have_one_meeting_point_that_is_gone_afterwards(program, tmp_path):
    command = program("open(sys.argv[1] + f'/{index}', 'w').write(os.environ['PORTING_RENDEZVOUS'])")

    assert run(command) == 0

    first, second = ((tmp_path / str(index)).read_text() for index in range(2))
    assert first == second
    assert not os.path.exists(os.path.dirname(first))


def test_the_cores_are_shared_unless_somebody_said_otherwise(program, tmp_path, monkeypatch):
    command = program("open(sys.argv[1] + f'/{index}', 'a').write(os.environ['OMP_NUM_THREADS'] + ' ')")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(7)), raising=False)
    run(command)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    run(command)

    assert (tmp_path / "0").read_text().split() == ["3", "7"]


def test_the_status_is_that_of_the_instance_that_failed(program, capsys):
    assert run(program("sys.exit(3 if index == 1 else 0)")) == 3

    assert capsys.readouterr().err == "porting run: instance 1 (of 0 to 1) ended with status 3\n"


def test_a_signal_gives_the_status_that_a_shell_would(program, capsys):
    assert run(program("os.kill(os.getpid(), signal.SIGKILL) if index == 0 else None")) == 128 + signal.SIGKILL

    assert "instance 0 (of 0 to 1) ended with signal SIGKILL" in capsys.readouterr().err


def test_a_signal_without_a_name_is_told_by_its_number(program, capsys):
    number = signal.SIGRTMIN + 1

    assert run(program(f"index and os.kill(os.getpid(), {number})")) == 128 + number

    assert f"instance 1 (of 0 to 1) ended with signal {number}" in capsys.readouterr().err


def test_any_thread_may_run_instances(program):
    before = signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(run, program("sys.exit(3 * index)")).result()

    assert status == 3
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_others_are_stopped_when_one_fails(program, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("porting.run.instances._GRACE_SECONDS", 0.2)
    command = program(WRITE_PID + FAIL_WHEN_THE_OTHER_IS_THERE)

    assert run(command) == 1

    assert "ended with status 1; stopping instance 0" in capsys.readouterr().err
    assert is_gone(int((tmp_path / "0").read_text()))


def test_one_that_does_not_stop_is_killed(program, monkeypatch, tmp_path):
    monkeypatch.setattr("porting.run.instances._GRACE_SECONDS", 0.5)
    monkeypatch.setattr("porting.run.instances._SECONDS_TO_STOP", 0.2)
    ignore = "if index == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    command = program(ignore + WRITE_PID + FAIL_WHEN_THE_OTHER_IS_THERE)

    assert run(command) == 1
    assert is_gone(int((tmp_path / "0").read_text()))


def test_only_the_first_instance_reads_stdin(program, tmp_path):
    command = program("open(sys.argv[1] + f'/{index}', 'w').write(sys.stdin.read())")
    launch = f"import os, sys; from porting.run import *; run_instances({command}, InstancePlan(2, 2), os.environ)"

    subprocess.run([sys.executable, "-c", launch], input="hello", text=True, check=True)

    assert [(tmp_path / str(index)).read_text() for index in range(2)] == ["hello", ""]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)]
)
def test_ending_the_launcher_ends_the_instances(program, tmp_path, number, status):
    command = program(WRITE_PID + "time.sleep(60)")
    launch = (
        "import os, sys, porting.run.instances as instances\n"
        "instances._GRACE_SECONDS = 0.1\n"
        f"sys.exit(instances.run_instances({command}, instances.InstancePlan(2, 2), os.environ))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", launch], stderr=subprocess.DEVNULL)
    wait_for(lambda: all((tmp_path / str(index)).exists() for index in range(2)))

    launcher.send_signal(number)

    assert launcher.wait(240) == status
    assert [is_gone(int((tmp_path / str(index)).read_text())) for index in range(2)] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells processes that their parent is gone")
def test_instances_end_with_a_launcher_that_was_killed(program, tmp_path):
    command = program(WRITE_PID + "time.sleep(60)")
    launch = f"import os; from porting.run import *; run_instances({command}, InstancePlan(2, 2), os.environ)"
    launcher = subprocess.Popen([sys.executable, "-c", launch])
    wait_for(lambda: all((tmp_path / str(index)).exists() for index in range(2)))

    launcher.kill()
    launcher.wait()

    wait_for(lambda: all(is_gone_or_dead(int((tmp_path / str(index)).read_text())) for index in range(2)))


def is_gone_or_dead(pid):
    """Tell a process that has ended, also where nobody takes notice: an orphan in a container may stay as a zombie."""
    try:
        return is_gone(pid) or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_for(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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


# the device, as `--device`, PORTING_DEVICE and what is installed say


@pytest.fixture
def vendor(monkeypatch):
    """Give a function that installs a vendor's module, with an IPU or without."""

    def install(*, has_ipu):
        module = types.ModuleType("poptorch")
        module.__spec__ = types.SimpleNamespace(name="poptorch")
        module.__version__ = "3.4.0"
        module.ipuHardwareIsAvailable = lambda: has_ipu
        module.ipuHardwareVersion = lambda: 21
        monkeypatch.setitem(sys.modules, "poptorch", module)

    monkeypatch.delenv("PORTING_DEVICE", raising=False)
    return install


@pytest.fixture
def no_vendor(monkeypatch):
    monkeypatch.delenv("PORTING_DEVICE", raising=False)
    monkeypatch.setattr("porting.run.instances.importlib.util.find_spec", lambda _name: None)
    monkeypatch.setitem(sys.modules, "poptorch", None)


def test_auto_takes_the_ipu_where_there_is_one(vendor):
    vendor(has_ipu=True)

    assert not is_simulated("auto")


def test_auto_takes_the_simulator_where_the_vendors_module_finds_no_ipu(vendor):
    vendor(has_ipu=False)

    assert is_simulated("auto")


def test_auto_takes_the_simulator_where_nothing_is_installed(no_vendor):
    assert is_simulated("auto")


def test_sim_is_the_simulator_on_hardware_too(vendor):
    vendor(has_ipu=True)

    assert is_simulated("sim")


def test_the_environment_decides_when_nothing_was_said(vendor, monkeypatch):
    vendor(has_ipu=True)
    monkeypatch.setenv("PORTING_DEVICE", "sim")

    assert is_simulated("auto")
    assert not is_simulated("ipu")


def test_an_ipu_that_is_not_there_is_an_error(vendor):
    vendor(has_ipu=False)

    with pytest.raises(DeviceError, match="finds no IPU on this machine") as caught:
        is_simulated("ipu")

    assert caught.value.code == "D001"


def test_a_misspelt_environment_variable_is_an_error(no_vendor, monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "gpu")

    with pytest.raises(OptionError, match="PORTING_DEVICE"):
        is_simulated("auto")
