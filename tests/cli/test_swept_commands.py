"""A sweep of commands says what came of each, keeps it in a file, and goes on with that after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from porting.cli import swept_commands
from porting.cli.sweeps import Cluster
from porting.cli.swept_commands import CommandCase, do_command, print_sweep, run_command, sweep_commands
from porting.diagnostics import PortingError

TWO = Cluster("local", "2")
NAMES = ("L001", "C001", "S001")
# each explains a code, and is told apart by it
CASES = [CommandCase(name, ("explain", name, "--format=json")) for name in NAMES]
# the second record is the last thing that it does
DIES = f"""
import os, pathlib, signal
from porting.cli.sweeps import Cluster
from porting.cli.swept_commands import CommandCase, sweep_commands

judged = []

def judge(case, output):
    judged.append(case.name)
    if len(judged) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {{"verdict": "first"}}

cases = [CommandCase(name, ("explain", name, "--format=json")) for name in {NAMES!r}]
sweep_commands(Cluster("local", "2"), cases, judge, folder=pathlib.Path("kept"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with another one for what is kept."""
    monkeypatch.chdir(tmp_path)
    Path("kept").mkdir()
    return Path("kept")


@pytest.fixture
def judged():
    """Note the cases that are judged; `judged.judge` does."""

    class Judged(list):
        def judge(self, case, output):
            self.append(case.name)
            return {"verdict": "FAIL" if case.name == "C001" else "PASS", "reason": json.loads(output)["slug"]}

    return Judged()


def end_with(monkeypatch, exit_status):
    """Let every command end at once with this status and an empty object."""
    monkeypatch.setattr(
        swept_commands,
        "run_command",
        lambda case, **_told: case.record("done", exit_status=exit_status, output='{"slug": "none"}'),
    )


def test_each_command_is_run_and_judged_by_what_it_prints(folder, judged):
    swept = sweep_commands(TWO, CASES, judged.judge, folder=folder)

    assert sorted(judged) == sorted(NAMES)
    assert [(record["name"], record["reason"]) for record in swept.records] == [
        ("L001", "loss-outside-forward"),
        ("C001", "host-read"),
        ("S001", "not-simulated"),
    ]
    assert (swept.exit_status, swept.is_interrupted) == (0, False)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_sweep_that_was_killed_goes_on_with_what_is_not_done(folder, judged):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", DIES], env=environment, capture_output=True)
    (done,) = [one for one in json.loads((folder / "sweep.json").read_text())["cases"] if one["status"] == "done"]

    swept = sweep_commands(TWO, CASES, judged.judge, folder=folder, resumes=True)

    assert killed.returncode == -9
    assert sorted([done["name"], *judged]) == sorted(NAMES)
    assert [record["verdict"] for record in swept.records if record["name"] == done["name"]] == ["first"]


def test_without_resume_all_is_done_anew(folder, judged):
    for _time in range(2):
        sweep_commands(TWO, CASES[:1], judged.judge, folder=folder)

    assert judged == ["L001", "L001"]


@pytest.mark.parametrize(
    "change", [{"words": ["explain", "other"]}, {"status": "failed"}, {"file": "kept/that-is-gone.json"}]
)
def test_what_is_not_the_same_case_or_not_kept_is_run_again(folder, judged, monkeypatch, change):
    end_with(monkeypatch, 0)
    sweep_commands(TWO, CASES[:1], judged.judge, folder=folder)
    content = json.loads((folder / "sweep.json").read_text())
    content["cases"][0].update(change)
    (folder / "sweep.json").write_text(json.dumps(content))

    sweep_commands(TWO, CASES[:1], judged.judge, folder=folder, resumes=True)

    assert judged == ["L001", "L001"]


def test_what_another_version_has_done_is_run_again(folder, judged, monkeypatch):
    end_with(monkeypatch, 0)
    sweep_commands(TWO, CASES[:1], judged.judge, folder=folder)
    monkeypatch.setattr(swept_commands, "VERSION", "99.0")

    sweep_commands(TWO, CASES[:1], judged.judge, folder=folder, resumes=True)

    assert judged == ["L001", "L001"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("explain", "L001", "--loud"), "there is no option --loud"),
        (("plan", "none.py:make"), "there is no file `none.py`"),
    ],
)
def test_a_command_that_gives_no_answer_has_failed_and_says_why(folder, words, reason):
    record = run_command(CommandCase("one", (*words, "--format=json")), folder=str(folder))

    assert (record["status"], record["exit_status"]) == ("failed", 2)
    assert reason in record["reason"]


def test_a_command_may_say_no(monkeypatch, folder, judged):
    end_with(monkeypatch, 1)

    assert sweep_commands(None, CASES, judged.judge).exit_status == 1


def test_an_interrupt_is_told_and_what_is_done_stays(monkeypatch, folder, judged, capsys):
    def interrupt(case, **_told):
        if case.name == "C001":
            raise KeyboardInterrupt
        return case.record("done", exit_status=0, output='{"slug": "none"}')

    monkeypatch.setattr(swept_commands, "run_command", interrupt)

    swept = sweep_commands(Cluster(), CASES, judged.judge, folder=folder)
    print_sweep(swept, "text")

    assert capsys.readouterr().err.endswith("interrupted\n")
    statuses = [one["status"] for one in json.loads((folder / "sweep.json").read_text())["cases"]]
    assert (swept.exit_status, statuses[1:]) == (130, ["interrupted", "not_run"])


def test_a_process_does_a_command_and_returns_what_it_prints(tmp_path):
    done = do_command({"words": ["explain", "L001", "--format=json"]}, tmp_path)

    assert (done["exit_status"], json.loads(done["output"])["code"]) == (0, "L001")


@pytest.mark.parametrize("text", ["", "[]", '{"form": "porting sweep", "version": 2}', '{"schema": "porting-bench"}'])
def test_a_file_that_is_no_sweep_is_refused_and_stays(folder, judged, text):
    (folder / "sweep.json").write_text(text)

    with pytest.raises(PortingError, match="holds no sweep to go on with"):
        sweep_commands(TWO, CASES, judged.judge, folder=folder, resumes=True)

    assert (folder / "sweep.json").read_text() == text


def test_a_folder_that_is_not_there_is_refused(folder, judged):
    with pytest.raises(PortingError, match="there is no folder `none`"):
        sweep_commands(TWO, CASES, judged.judge, folder=Path("none"))


def test_the_table_has_a_row_for_each_case_and_the_number_of_each_verdict(monkeypatch, judged, capsys):
    end_with(monkeypatch, 0)
    swept = sweep_commands(None, CASES, judged.judge)
    capsys.readouterr()

    print_sweep(swept, "text")

    assert capsys.readouterr().out.splitlines() == [
        "PASS  L001  0 s  none",
        "FAIL  C001  0 s  none",
        "PASS  S001  0 s  none",
        "of 3: 2 PASS, 1 FAIL",
    ]
