"""`porting run` runs a program as Python itself would, with the simulator under the vendor's name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from porting.cli.main import main

NOTICE = "simulated: poptorch is porting.simulator on this CPU; no IPU took part\n"

VENDOR = """
__version__ = "3.4.0"
def ipuHardwareIsAvailable(num_ipus=1):
    return {has_ipu}
def ipuHardwareVersion():
    return 21
"""


@pytest.fixture
def program(tmp_path):
    """Give a function that writes a program into a folder and returns its path."""

    def write(source, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
        return str(path)

    return write


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """Give a function that puts a vendor's module on the path of programs."""

    def install(*, has_ipu):
        folder = tmp_path / "vendor" / "poptorch"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(VENDOR.format(has_ipu=has_ipu))
        monkeypatch.setenv("PYTHONPATH", str(folder.parent))

    return install


@pytest.fixture(autouse=True)
def _nothing_is_said_by_the_environment(monkeypatch):
    # unbuffered, lines of two processes would be torn apart
    for name in ("PORTING_DEVICE", "PORTING_SIM_HARDWARE", "PORTING_STAND_INS", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)


def porting_run(*words, python=(), **options):
    command = [sys.executable, *python, "-m", "porting", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, **options)


def printed(*words, **options):
    result = porting_run(*words, **options)
    assert (result.returncode, result.stderr) == (0, NOTICE)
    return result.stdout


# -- as Python itself ------------------------------------------------------------------------------------------------


def test_a_program_sees_itself_as_if_python_had_run_it(program):
    path = program("import sys; print([__name__, __file__, __spec__, __package__, sys.argv, sys.path[0]])")
    plain = subprocess.run([sys.executable, path, "a"], capture_output=True, text=True, check=True).stdout

    assert printed(path, "a") == plain


def test_what_follows_the_program_is_the_programs(program):
    path = program("import sys; print(sys.argv[1:])")
    words = ["--device", "tpu", "-m", "x", "--format", "json", "-h", "--", "run", "--version", "--inject", "list"]

    assert printed(path, *words) == f"{words}\n"


def test_two_dashes_may_come_before_the_program(program):
    assert printed("--device", "sim", "--", program("import sys; print(sys.argv[1:])"), "--", "x") == "['--', 'x']\n"


def test_a_module_is_run_with_what_follows_it(program, tmp_path):
    program("import sys; print(__name__, __spec__.name, sys.argv[1:])", name="tool/__main__.py")

    assert printed("-m", "tool", "--device", "x", cwd=tmp_path) == "__main__ tool.__main__ ['--device', 'x']\n"


def test_a_folder_with_a_main_module_is_run(program, tmp_path):
    program("print('main of a folder')", name="tool/__main__.py")

    assert printed(str(tmp_path / "tool")) == "main of a folder\n"


def test_a_program_may_come_from_stdin():
    assert printed("-", "a", input="import sys; print(sys.argv)") == "['-', 'a']\n"


def test_a_program_reads_stdin(program):
    assert printed(program("print(input() * 2)"), input="ha\n") == "haha\n"


def test_a_command_that_starts_python_is_run(program):
    assert printed("python3", program("import sys; print(sys.argv[1:])"), "-x") == "['-x']\n"


def test_a_shell_script_that_starts_python_is_run(program):
    path = program(f"#!/bin/sh\n{sys.executable} -c 'import sys; print(sys.argv)' \"$@\"\n", name="train.sh")
    os.chmod(path, 0o755)

    assert printed(path, "--epochs", "3") == "['-c', '--epochs', '3']\n"


@pytest.mark.parametrize("options", [[], ["--num-instances", "2"]])
def test_a_file_that_the_system_cannot_run_is_wrong_usage(program, options):
    path = program("print(1)", name="train")
    os.chmod(path, 0o755)

    result = porting_run(*options, path)

    assert result.returncode == 2
    assert f"cannot run {path}: Exec format error; its first line (#!) names no interpreter" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_script_whose_interpreter_is_missing_is_wrong_usage(program):
    path = program("#!/no/such/interpreter\n", name="train")
    os.chmod(path, 0o755)

    result = porting_run(path)

    assert result.returncode == 2
    assert f"cannot run {path}: No such file or directory" in result.stderr


def test_options_of_the_interpreter_are_the_programs(program):
    path = program("import sys; print(sys.warnoptions, sys.flags.dont_write_bytecode)")

    assert printed(path, python=["-B", "-W", "error"]) == "['error'] 1\n"


@pytest.mark.parametrize(
    ("source", "status", "said"),
    [("pass", 0, ""), ("import sys; sys.exit(7)", 7, ""), ("raise SystemExit('no data')", 1, "no data\n")],
)
def test_the_status_is_the_programs(program, source, status, said):
    result = porting_run(program(source))

    assert (result.returncode, result.stdout, result.stderr) == (status, "", NOTICE + said)


def test_a_traceback_shows_the_programs_frames_only(program):
    path = program("def fail():\n    raise ValueError('wrong')\n\nfail()\n")
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)

    result = porting_run(path)

    assert (result.returncode, result.stderr) == (plain.returncode, NOTICE + plain.stderr)


def test_an_interruption_reaches_the_program_and_nothing_else(program):
    path = program(
        "import sys, time\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(9)\n"
    )
    command = [sys.executable, "-m", "porting", "run", path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"

    process.send_signal(signal.SIGINT)

    _output, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (9, NOTICE)


# -- which device ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "seen"), [({}, "1"), ({"PORTING_SIM_HARDWARE": "0"}, "0")])
def test_simulated_devices_count_as_hardware_unless_somebody_said_otherwise(program, given, seen):
    path = program("import os; print(os.environ['PORTING_SIM_HARDWARE'])")

    assert printed(path, env={**os.environ, **given}) == f"{seen}\n"


def test_an_ipu_that_is_not_there_is_a_finding(program, capsys):
    assert main(["--format", "json", "run", "--device", "ipu", program("")]) == 2

    finding = json.loads(capsys.readouterr().err)
    assert finding["code"] == "D001"


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_the_vendors_module_is_used_where_it_finds_an_ipu(program, vendor):
    vendor(has_ipu=True)

    result = porting_run(program("import poptorch; print(poptorch.__file__)"))

    assert (result.returncode, result.stderr) == (0, "")
    assert "vendor/poptorch/__init__.py" in result.stdout


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
@pytest.mark.parametrize(("has_ipu", "words"), [(True, ["--device", "sim"]), (False, [])], ids=["asked", "no ipu"])
def test_the_simulator_takes_the_place_of_an_installed_module(program, vendor, has_ipu, words):
    vendor(has_ipu=has_ipu)
    path = program("import importlib.util; print(importlib.util.find_spec('poptorch').origin)")

    assert printed(*words, path).endswith("porting/simulator/__init__.py\n")


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_on_hardware_instances_are_the_vendors_affair(program, vendor):
    vendor(has_ipu=True)

    result = porting_run("--num-instances", "2", program(""))

    assert result.returncode == 2
    assert "several instances are started by the vendor's poprun" in result.stderr


# -- several instances -----------------------------------------------------------------------------------------------


def test_instances_are_started_and_their_status_counts(program):
    path = program("import os, sys; sys.exit(int(os.environ['OMPI_COMM_WORLD_RANK']) * 5)")

    result = porting_run("--num-instances", "2", path)

    assert result.returncode == 5
    assert result.stderr == NOTICE + "porting run: instance 1 (of 0 to 1) ended with status 5\n"


def test_replicas_are_shared_out(program):
    path = program(
        "import os; print(os.environ['POPDIST_NUM_LOCAL_REPLICAS'], os.environ['POPDIST_NUM_TOTAL_REPLICAS'])"
    )

    assert printed("--num-instances", "2", "--num-replicas", "6", path).splitlines() == ["3 6", "3 6"]


# -- wrong usage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "what is to be run?"),
        (["missing.py"], "there is no file missing.py"),
        (["-m"], "argument -m: expected a module"),
        (["--devise", "sim", "-"], "porting run: error: there is no option --devise: did you mean `--device`?"),
        (["--injekt=x", "p.py"], "porting run: error: there is no option --injekt: did you mean `--inject`?"),
        (["--"], "what is to be run?"),
        (["--device", "tpu", "-"], "there is no `tpu`"),
        (["--num-instances", "0", "-"], "must be at least 1"),
        (["--num-instances", "2", "--num-replicas", "3", "-"], "3 replicas do not divide into 2 instances"),
    ],
    ids=[
        "nothing",
        "no file",
        "no module",
        "option",
        "option=",
        "--",
        "unknown device",
        "no instance",
        "uneven replicas",
    ],
)
def test_wrong_usage_says_so_and_ends_with_2(capsys, words, said):
    with pytest.raises(SystemExit, match="2"):
        main(["run", *words])

    assert said in capsys.readouterr().err


def test_the_help_is_ours_before_the_program(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--help"])

    assert NOTICE.strip() in capsys.readouterr().out


def test_a_program_that_imports_nothing_gets_nothing(program):
    path = program("import sys; print('torch' in sys.modules, 'porting.simulator' in sys.modules)")

    assert printed(path) == "False False\n"
