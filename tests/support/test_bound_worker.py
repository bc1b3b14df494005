"""The side of a bound process that does the job: what it returns and what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from porting.support.bound_process import JOB, READY, RESULT

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are those of POSIX")
START = "import sys; from porting.support.bound_worker import main; sys.exit(main(sys.argv[1]))"


@pytest.fixture
def work(tmp_path):
    """Give a function that lets a worker do a function of a module in its own process."""

    def do(body):
        (tmp_path / "worker_job.py").write_text(f"def do(arguments, folder):\n    {body}\n")
        (tmp_path / JOB).write_text(
            json.dumps({"function": "worker_job:do", "arguments": {"number": 3}, "is_idle": False})
        )
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        # the end of this pipe would be the end of the worker
        lifeline, held = os.pipe()
        try:
            ended = subprocess.run(
                [sys.executable, "-c", START, str(tmp_path)],
                env={**os.environ, "PYTHONPATH": path},
                stdin=lifeline,
                capture_output=True,
                check=False,
            )
        finally:
            os.close(held)
            os.close(lifeline)
        return ended.returncode, json.loads((tmp_path / RESULT).read_text())

    return do


def test_what_the_job_returns_is_its_result(work):
    assert work("return arguments['number'] + 1") == (0, {"returned": 4})


def test_what_the_job_raises_is_named(work):
    assert work("raise ValueError('no such number')") == (1, {"error": "ValueError: no such number"})


def test_it_is_known_when_the_worker_would_end_with_its_parent(work, tmp_path):
    work("return 0")

    assert (tmp_path / READY).exists()
