"""`porting run --inject` brings the failure lab's trouble into a program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from porting.cli.main import main

PROGRAM = """
import torch, poptorch

executor = poptorch.inferenceModel(torch.nn.ReLU())
for call in range(3):
    try:
        executor(torch.ones(1))
    except poptorch.Error as error:
        print(call, type(error).__name__, getattr(error, "recovery_action", ""))
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_the_kinds_of_trouble_are_listed(capsys):
    assert main(["run", "--inject", "list"]) == 0

    printed = capsys.readouterr().out
    assert "lost-device" in printed
    assert "recovery=IPU_RESET or LINK_RESET, PARTITION_RESET, FULL_RESET, none" in printed


@pytest.mark.slow
def test_trouble_reaches_the_program(program):
    words = ["--inject", "lost-device:at_call=2,recovery=LINK_RESET", "--inject", "busy-device:times=1"]

    done = subprocess.run(
        [sys.executable, "-m", "porting", "run", "--device", "sim", *words, program],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["0 Error ", "2 RecoverableError LINK_RESET"]


@pytest.mark.parametrize(
    ("words", "message"),
    [("fire", "unknown kind of trouble `fire`"), ("host-stream:x=1", "`host-stream` has no setting `x`")],
)
def test_unknown_trouble_is_wrong_usage(program, capsys, words, message):
    with pytest.raises(SystemExit) as end:
        main(["run", "--device", "sim", "--inject", words, program])

    assert end.value.code == 2
    assert message in capsys.readouterr().err
