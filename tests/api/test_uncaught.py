from __future__ import annotations

import subprocess
import sys

import pytest

from porting.api.uncaught import show_findings_alone
from porting.diagnostics import PortingError

PROGRAM = """
import torch
from porting import to_ipu
ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(), device="sim")
ported(torch.ones(2, 4)) if {finding} else undefined_name
"""


def run(finding, **env):
    import os

    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(finding=finding)],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )


@pytest.mark.slow
def test_a_finding_that_nobody_catches_is_shown_without_a_traceback():
    ended = run(finding=True)

    assert ended.returncode == 1
    assert "error[D006]" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_the_traceback_comes_back_by_a_variable():
    assert "Traceback" in run(finding=True, PORTING_TRACEBACK="1").stderr


@pytest.mark.slow
def test_all_other_errors_have_theirs():
    ended = run(finding=False)

    assert "Traceback" in ended.stderr
    assert "NameError" in ended.stderr


def test_the_hook_that_was_there_gets_everything_but_findings(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    show_findings_alone()
    show_findings_alone()
    other = ValueError()

    sys.excepthook(ValueError, other, None)
    sys.excepthook(PortingError, PortingError.of("L002"), None)

    assert seen == [other]
    assert capsys.readouterr().err.count("error[L002]") == 1
