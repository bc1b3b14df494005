"""`porting compile` keeps an executable of a step or of a target; what does not fit is refused."""

from __future__ import annotations

import pytest

from porting.cli.main import main

pytestmark = pytest.mark.usefixtures("target_folder")


def test_a_compilation_keeps_an_executable(exported_step, capsys, interpreted_engine):
    first = main(["compile", exported_step, "--cache", "cache", "--engine", "interpreted"])
    second = main(["compile", exported_step, "--cache", "cache", "--engine", "interpreted"])

    said = capsys.readouterr().out
    assert (first, second) == (0, 0)
    assert "compiled and kept in the cache" in said
    assert "it was in the cache" in said


def test_a_target_is_exported_and_compiled_in_one_go(capsys, interpreted_engine):
    status = main(["compile", "exported_of_test.py:make", "--cache", "cache", "--engine", "interpreted"])

    assert status == 0
    assert interpreted_engine.calls.count("compile") == 1


def test_a_compilation_that_fails_ends_with_a_status(exported_step, capsys, interpreted_engine, monkeypatch):
    monkeypatch.setattr(interpreted_engine, "compile", lambda *_a, **_k: 1 / 0)

    status = main(["compile", exported_step, "--cache", "cache", "--engine", "interpreted"])

    assert status == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--batch", "16"], "E025"),
        (["--accumulation", "2"], "E025"),
        (["--mode", "inference"], "E025"),
        (["--precision", "mixed"], "E025"),
        (["--computation-order", "sqrt"], "E026"),
        (["--dump-graph", "png"], "E028"),
        (["--engine", "warp-drive"], "P004"),
    ],
)
def test_what_does_not_fit_the_exported_step_is_refused(exported_step, capsys, options, code):
    assert main(["compile", exported_step, "--cache", "cache", *options]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


def test_a_missing_step_is_a_finding(capsys):
    assert main(["compile", "missing.step"]) == 2
    assert "error[E023]" in capsys.readouterr().err
