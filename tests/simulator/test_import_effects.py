"""What importing the package does to a process, looked at in fresh ones."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import porting.simulator as simulator
from porting.simulator import _import_effects
from porting.simulator.errors import native_error

IMPORT = "import porting.simulator as poptorch\n"
PROGRAM = f"""
{IMPORT}
import faulthandler, os, tqdm
from porting.simulator._logging import cpp_log

print(os.environ["RDMAV_FORK_SAFE"], faulthandler.is_enabled(), tqdm.tqdm.get_lock().locks)
for _ in range(9):
    cpp_log("error", "again")
raise ValueError("wibble")
"""


def run(program):
    """Run a program that imports the simulator in a process that has not done so before."""
    environment = {name: value for name, value in os.environ.items() if name != "RDMAV_FORK_SAFE"}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def ended_process(program_server):
    """Give a process that imported the simulator, looked at itself and ended with an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", program_server.python)
        return run(PROGRAM)


@pytest.mark.slow
def test_forks_are_made_safe_for_the_network_library(ended_process):
    assert ended_process.stdout.split()[0] == "1"


@pytest.mark.slow
def test_crashes_are_reported(ended_process):
    assert ended_process.stdout.split()[1] == "True"


@pytest.mark.slow
def test_the_lock_between_processes_of_the_progress_bars_is_gone(ended_process):
    assert ended_process.stdout.split()[2] == "[]"


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_the_program_still_chooses_how_its_processes_start():
    done = run(IMPORT + "import multiprocessing; multiprocessing.set_start_method('spawn')")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_the_lock_that_the_program_gave_the_progress_bars_stays():
    set_lock = "import threading, tqdm; lock = threading.RLock(); tqdm.tqdm.set_lock(lock)\n"

    done = run(set_lock + IMPORT + "print(tqdm.tqdm.get_lock() is lock)")

    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.slow
def test_an_uncaught_error_is_logged_once_with_its_traceback(ended_process):
    assert ended_process.returncode == 1
    assert "[poptorch::python] [critical] Traceback (most recent call last):\n" in ended_process.stderr
    assert ended_process.stderr.count("ValueError: wibble") == 1


@pytest.mark.slow
def test_lines_left_out_at_the_end_of_a_program_are_counted(ended_process):
    lines = [line.split("] ")[-1] for line in ended_process.stderr.splitlines() if "[poptorch:cpp]" in line]

    assert lines == ["again"] * 4 + ["last line repeated 5 more times"]


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_termination_shows_where_the_program_was_and_still_ends_it():
    done = run(IMPORT + "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")

    assert done.returncode == -signal.SIGTERM
    assert 'File "<string>", line 2 in <module>' in done.stderr


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_crashes_go_unreported_where_nothing_can_be_written(monkeypatch, stream):
    def fail(*_args, **_settings):
        raise AssertionError("there is no stream")

    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "__stderr__", stream)
    monkeypatch.setattr("faulthandler.enable", fail)
    monkeypatch.setattr("faulthandler.register", fail)

    _import_effects._enable_crash_reports()

    assert sys.stderr is stream


def test_an_uncaught_error_is_shown_although_logging_is_off(capsys):
    logging.disable(logging.CRITICAL)
    try:
        _import_effects._make_logging_hook(sys.__excepthook__)(ValueError, ValueError("wibble"), None)
    finally:
        logging.disable(logging.NOTSET)

    assert capsys.readouterr().err == "ValueError: wibble\n"


@pytest.mark.parametrize(("stdout", "stderr"), [("said", "warned"), (b"said", b"warned"), ("said", b"warned")])
def test_an_uncaught_error_of_a_command_shows_what_the_command_said(caplog, stdout, stderr):
    error = subprocess.CalledProcessError(3, "make", output=stdout, stderr=stderr)

    _import_effects._make_logging_hook(sys.__excepthook__)(type(error), error, None)

    (record,) = caplog.records
    assert (record.name, record.levelname) == ("poptorch::python", "CRITICAL")
    assert record.getMessage().startswith("subprocess.CalledProcessError: Command 'make' returned")
    assert record.getMessage().endswith("stdout of the command:\nsaid\nstderr of the command:\nwarned")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (native_error("one of them has ended", kind="popdist_error"), "one of them has ended"),
    ],
)
def test_what_comes_over_all_instances_at_once_is_one_line(caplog, monkeypatch, error, said):
    monkeypatch.setenv("PORTING_RENDEZVOUS", "somewhere")

    _import_effects._make_logging_hook(sys.__excepthook__)(type(error), error, None)

    assert caplog.messages[0].endswith(said)
    assert len(caplog.messages[0].splitlines()) == 1


def test_another_tools_hook_for_uncaught_errors_is_still_called(caplog):
    calls = []

    _import_effects._make_logging_hook(lambda *error: calls.append(error))(ValueError, ValueError("x"), None)

    assert [kind for kind, _error, _trace in calls] == [ValueError]
    assert caplog.messages == ["ValueError: x\n"]


def test_types_of_the_geometric_package_are_registered_where_it_is_installed(monkeypatch):
    calls = []
    types = SimpleNamespace(registerCustomArgParsers=lambda: calls.append("registered"))
    monkeypatch.setitem(sys.modules, "poptorch_geometric", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "poptorch_geometric.types", types)

    simulator.registerGeometricCustomArgParsers()

    assert calls == ["registered"]


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["import not_there", "raise ImportError('no torch_sparse')"])
def test_the_import_succeeds_where_that_of_the_geometric_package_fails(fault, tmp_path):
    package = tmp_path / "poptorch_geometric"
    package.mkdir()
    (package / "__init__.py").write_text(fault)
    program = "import porting.simulator; print(porting.simulator.Options().device_iterations)"
    path = os.pathsep.join([str(tmp_path), *sys.path])

    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )

    assert run.stdout == "1\n", run.stderr
    assert "poptorch_geometric are not registered as arguments of models: " in run.stderr


def test_nothing_happens_without_the_geometric_package(caplog):
    assert simulator.registerGeometricCustomArgParsers() is None
    assert [record.levelname for record in caplog.records if record.levelname != "DEBUG"] == []


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_library_finds_what_it_builds_its_loader_and_its_functions_on(tmp_path):
    """`poptorch_geometric` imports these two names from modules of PopTorch's front end."""
    (tmp_path / "library.py").write_text(
        "from poptorch._poplar_executor import _OverwriteContextManager\n"
        "from poptorch._utils import combine_batch_tensors_gen, flattenTensorStructure, reconstructTensorStructure\n"
        "assert _OverwriteContextManager.registerSubsitutionManager\n"
        "print('imported')\n"
    )

    run = subprocess.run(
        [sys.executable, "-m", "porting", "run", "library.py"], capture_output=True, text=True, cwd=tmp_path
    )

    assert "imported" in run.stdout, run.stderr


def test_the_effects_happen_once():
    hook, to_text = sys.excepthook, torch._tensor_str._tensor_str

    _import_effects.apply_import_effects()

    assert sys.excepthook is hook
    assert torch._tensor_str._tensor_str is to_text


def test_a_tensor_on_the_device_prints_without_its_values():
    class OnDevice:
        device = torch.device("ipu")

    assert torch._tensor_str._tensor_str(OnDevice(), 0) == "<unavailable>"
    assert repr(torch.ones(2)) == "tensor([1., 1.])"


def test_the_version_names_version_and_snapshot():
    assert simulator.__version__ == "3.4.0-simulator"
