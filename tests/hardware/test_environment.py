"""`make hardware-path` says what is missing, and takes what it needs from where it is pinned."""

from __future__ import annotations

import pytest

from tests.hardware import environment


@pytest.mark.parametrize(
    ("is_rig_there", "reason"), [(False, "no hardware rig: "), (True, "no Python 3.8 that works: ")]
)
def test_what_is_missing_is_said_in_a_line_and_is_no_failure(is_rig_there, reason, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(environment, "find_python", lambda _version: None)
    monkeypatch.setattr(environment, "RIG", tmp_path if is_rig_there else tmp_path / "nowhere")

    assert environment.main([]) == 0

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"hardware path: not tested, {reason}")


def test_every_requirement_is_pinned():
    lines = environment.REQUIREMENTS.read_text("utf-8").splitlines()

    assert [line for line in lines if line and not line.startswith("#") and "==" not in line] == []
