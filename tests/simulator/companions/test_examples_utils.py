"""The helpers of the vendor's examples: operators in C++ are not compiled, commands are run."""

from __future__ import annotations

import subprocess
import sys

import pytest

import porting.simulator as poptorch


def test_a_program_may_initialize_and_ask_for_the_version():
    import examples_utils

    assert examples_utils.init() is None
    assert examples_utils.sdk_version_hash() == poptorch.__version__


def test_every_way_to_the_loader_is_one_function():
    import examples_utils
    from examples_utils.load_lib_utils.load_lib_utils import load_lib

    assert load_lib is examples_utils.load_lib is examples_utils.load_lib_utils.load_lib


def test_an_operator_in_cpp_is_not_compiled_and_a_warning_says_so(tmp_path, caplog):
    import examples_utils

    for name in ("a.cpp", "below/b.cpp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    poptorch.logger.propagate, before = True, poptorch.logger.propagate

    examples_utils.load_lib_all(str(tmp_path))

    poptorch.logger.propagate = before
    assert [record.getMessage().partition(" was not compiled")[0] for record in caplog.records] == [
        str(tmp_path / "a.cpp"),
        str(tmp_path / "below/b.cpp"),
    ]


def test_a_source_that_is_not_there_is_an_error():
    import examples_utils

    with pytest.raises(FileNotFoundError, match=r"missing\.cpp"):
        examples_utils.load_lib("missing.cpp")


def test_commands_are_run_and_their_output_returned(tmp_path):
    from examples_utils.testing import test_commands as commands

    assert (
        commands.run_command([sys.executable, "-c", "import os; print(os.getcwd())"], str(tmp_path)) == f"{tmp_path}\n"
    )
    assert commands.run_command("echo a b") == "a b\n"


def test_a_command_that_fails_shows_its_output():
    from examples_utils.testing import test_commands as commands

    program = [sys.executable, "-c", "import sys; print('almost'); sys.exit(2)"]

    with pytest.raises(subprocess.CalledProcessError):
        commands.run_command(program)
    with pytest.raises(commands.CalledProcessError, match="almost"):
        commands.run_command_fail_explicitly(program)
