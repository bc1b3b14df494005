"""Whatever becomes of a process, there is an outcome: done, failed, out of memory or too long."""

from __future__ import annotations

import os

import pytest

from porting.support.bound_process import BoundProcess
from porting.support.process_outcomes import wait_for_outcome

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are those of POSIX")


@pytest.fixture
def wait(tmp_path, monkeypatch):
    """Give a function that runs a job with the given body, and returns its outcome."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def wait_for_body(body, **settings):
        (tmp_path / "outcome_job.py").write_text(f"import os, time\ndef do(arguments, folder):\n    {body}\n")
        process = BoundProcess("outcome_job:do", {}, parent=str(tmp_path))
        try:
            process.start()
            return wait_for_outcome(process, **settings)
        finally:
            process.end()

    return wait_for_body


def test_what_a_job_returns_is_its_result(wait):
    assert wait("return {'number': 7}") == ("done", "", {"number": 7})


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("raise ValueError('no data here')", "failed", "ValueError: no data here"),
        ("raise ValueError('error[T001]: it is a finding')", "failed", "error[T001]: it is a finding"),
        ("raise RuntimeError('out of memory')", "out_of_memory", "RuntimeError: out of memory"),
        ("os.kill(os.getpid(), 9)", "out_of_memory", "the process ended with signal 9"),
        ("print('last words', flush=True); os._exit(3)", "failed", "exit status 3: last words"),
    ],
)
def test_a_job_that_ends_badly_says_why(wait, body, status, reason):
    outcome = wait(body)

    assert (outcome.status, outcome.result) == (status, None)
    assert reason in outcome.reason


def test_a_job_that_hangs_is_given_up(wait):
    assert wait("time.sleep(600)", timeout=0.5) == ("timeout", "it ran longer than 0 s", None)


def test_what_is_written_as_progress_is_passed_on(wait):
    told = []

    def end_when_told(text, share):
        told.append((text, share))
        if text == "half of it":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait("(folder / 'progress').write_text('0.5 half of it'); time.sleep(600)", progress=end_when_told)

    # how often it was looked at before depends on the machine
    assert {*told[:-1]} <= {("starting", 0.0)}
    assert told[-1] == ("half of it", 0.5)
