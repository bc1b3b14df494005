"""A command line names the script and its arguments, by Python or by a launcher of processes."""

from __future__ import annotations

import os

import pytest

from porting.convert.targets import as_only_process, find_target
from porting.diagnostics import ExecutableError
from tests.convert.conversions import LOOP


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


def test_a_launched_program_is_told_that_it_is_the_only_process(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    (tmp_path / "train.py").write_text(LOOP)

    with as_only_process(find_target(str(tmp_path), "torchrun train.py")):
        inside = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]

    assert inside == ["0", "0", "1"]
    assert os.environ["RANK"] == "3"
    assert "LOCAL_RANK" not in os.environ
