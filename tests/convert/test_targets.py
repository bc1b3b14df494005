"""The program to convert is found, or the error says what there is and what could not be read."""

from __future__ import annotations

import os

import pytest

from porting.convert.targets import as_own_process, find_target
from porting.diagnostics import ExecutableError
from tests.convert.conversions import LOOP


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "other.py").write_text("x = 1\n")
    return tmp_path


def fault_of(path, command=None):
    with pytest.raises(ExecutableError) as raised:
        find_target(str(path), command)
    assert raised.value.finding.help
    return raised.value.finding


def test_the_only_program_that_trains_is_found(project):
    target = find_target(str(project), None)

    assert (target.script, target.is_run) == ("train.py", False)


@pytest.mark.parametrize("command", ["train.py --epochs 1", "python train.py --epochs 1"])
def test_a_command_line_names_the_program_and_its_arguments(project, command):
    target = find_target(str(project), command)

    assert (target.script, target.arguments, target.is_run) == ("train.py", ("--epochs", "1"), True)


def test_a_script_with_a_space_in_its_name_is_quoted_as_in_a_shell(project):
    (project / "my train.py").write_text(LOOP)

    assert find_target(str(project), "'my train.py' -v").script == "my train.py"


def test_several_programs_that_train_are_named(project):
    (project / "again.py").write_text(LOOP)

    assert "2 programs that train: `again.py`, `train.py`" in fault_of(project).message


def test_where_none_trains_what_could_not_be_read_is_named(project):
    (project / "train.py").write_text("def f(:\n")

    finding = fault_of(project)

    assert "no program that trains" in finding.message
    assert [note for note in finding.notes if "train.py" in note and "does not parse" in note]


def test_a_command_line_without_a_script_is_refused(project):
    assert "`python -m train` names no script" in fault_of(project, "python -m train").message


@pytest.mark.parametrize(("path", "command"), [("nowhere", None), (".", "nowhere.py")])
def test_what_is_not_there_is_an_error(project, path, command):
    assert "nowhere" in fault_of(project / path, command).message


@pytest.mark.parametrize(
    ("command", "is_launched"),
    [
        ("train.py --steps 2", False),
        ("python -u train.py --steps 2", False),
        ("torchrun --nproc-per-node 1 train.py --steps 2", True),
        ("torchrun --standalone --nproc_per_node=2 train.py --steps 2", True),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py --steps 2", True),
        ("accelerate launch train.py --steps 2", True),
    ],
)
def test_what_starts_the_script_is_left_out(tmp_path, command, is_launched):
    (tmp_path / "train.py").write_text(LOOP)
    target = find_target(str(tmp_path), command)
    assert (target.script, target.arguments, target.is_launched) == ("train.py", ("--steps", "2"), is_launched)


def test_a_script_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ExecutableError, match="there is no script `other.py`"):
        find_target(str(tmp_path), "torchrun other.py")


@pytest.mark.parametrize("command", ["train.py", "torchrun train.py"])
def test_a_program_that_is_run_for_a_proof_chooses_its_device_itself(tmp_path, monkeypatch, command):
    monkeypatch.setenv("PORT_DEVICE", "sim")
    (tmp_path / "train.py").write_text(LOOP)

    with as_own_process(find_target(str(tmp_path), command)):
        assert "PORT_DEVICE" not in os.environ
    assert os.environ["PORT_DEVICE"] == "sim"


def test_a_launched_program_is_told_that_it_is_the_only_process(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    (tmp_path / "train.py").write_text(LOOP)

    with as_own_process(find_target(str(tmp_path), "torchrun train.py")):
        inside = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]

    assert inside == ["0", "0", "1"]
    assert os.environ["RANK"] == "3"
    assert "LOCAL_RANK" not in os.environ
