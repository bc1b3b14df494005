"""The progress bar of a compilation: what it shows, and the time it measures."""

from __future__ import annotations

import copy
import pickle

import pytest
from tqdm import tqdm

from porting.simulator._options.simulator_options import CompilationProgressBar


def test_bar_ends_at_its_total(capsys):
    report = CompilationProgressBar()

    report(1, 4)
    report(4, 4)

    assert "100%" in capsys.readouterr().err


def test_the_bar_of_a_programs_own_loop_stays_whole(capsys):
    with tqdm(total=3, desc="epochs"):
        CompilationProgressBar()(4, 4)

    assert any(line.startswith("Graph compilation") for line in capsys.readouterr().err.splitlines())


def test_time_is_that_of_the_last_finished_compilation(monkeypatch):
    clock = iter([10.0, 13.5, 20.0])
    monkeypatch.setattr("porting.simulator._options.simulator_options.time.perf_counter", lambda: next(clock))
    report = CompilationProgressBar()

    report(0, 2)
    unfinished = report.compilation_time
    report(2, 2)

    assert unfinished is None
    assert report.compilation_time.total_seconds() == 3.5


def test_new_compilation_forgets_the_time_of_the_last():
    report = CompilationProgressBar()
    report(2, 2)

    report(0, 2)
    report.close()

    assert report.compilation_time is None


def test_closing_without_a_bar_does_nothing(capsys):
    CompilationProgressBar().close()

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda report: pickle.loads(pickle.dumps(report))], ids=["deepcopy", "pickle"]
)
def test_copies_have_no_bar_on_the_screen(duplicate):
    report = CompilationProgressBar()
    report(1, 2)

    again = duplicate(report)
    report.close()

    assert again._bar is None
