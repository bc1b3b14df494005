"""A copy of a recipe runs without the package around it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from porting.cli.main import main


def run_program(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, **options)


@pytest.mark.slow
def test_a_copied_program_is_imported_by_itself(tmp_path):
    main(["recipe", "copy", "first_port", str(tmp_path / "mine")])
    program = "import step_2_loss_in_forward as step; print(*step.train(2))"

    result = run_program("-c", program, cwd=tmp_path / "mine")

    assert len(result.stdout.split()) == 2, result.stderr


@pytest.mark.slow
def test_a_copied_program_runs_as_a_script(tmp_path):
    main(["recipe", "copy", "first_port", str(tmp_path / "mine")])

    result = run_program(str(tmp_path / "mine" / "step_5_device_iterations.py"), cwd=tmp_path)

    assert re.fullmatch(r"loss 2\.\d+ -> 0\.\d+, test accuracy 0\.9[5-9]\d\n", result.stdout), result.stderr
