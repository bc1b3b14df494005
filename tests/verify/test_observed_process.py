"""A script of a project runs in a copy of it: there it imports and writes, and places are those of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from porting.diagnostics import ExecutableError
from porting.verify.observation import ProjectRun
from porting.verify.plain_runs import PLAIN
from porting.verify.program_runs import ProgramPair, ProgramRuns

pytestmark = pytest.mark.usefixtures("fork_programs")

STEP = """\
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""


@pytest.fixture
def run(tmp_path):
    """Run a script of a project with a folder of checkpoints, and return what was observed."""

    def run(text, *, working=".", limit_seconds=60):
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "best.pt").write_text("old")
        (tmp_path / "own.py").write_text("value = 1\n")
        (tmp_path / "train.py").write_text(text)
        script = str(tmp_path / "train.py")
        project = ProjectRun((str(tmp_path),), working, limit_seconds)
        runs = ProgramRuns(ProgramPair(script, script), 0, "sim", lambda _stage: None, plain_project=project)
        return runs.run_plain(1, PLAIN)[0]

    return run


def test_what_a_script_writes_is_not_in_the_project(run, tmp_path):
    saves = "torch.save(model, 'checkpoints/best.pt'); open('checkpoints/log', 'w').write('x')\n"

    observed = run(STEP + saves)

    assert (observed.num_steps, observed.error) == (1, "")
    assert (tmp_path / "checkpoints" / "best.pt").read_text() == "old"
    assert os.listdir(tmp_path / "checkpoints") == ["best.pt"]


def test_a_script_finds_the_project_and_its_working_folder(run):
    looks = "import os, own\nassert own.value == 1\nassert os.listdir('.') == ['best.pt']\n"

    assert run(looks + STEP, working="checkpoints").error == ""


def test_an_absolute_path_into_the_project_is_not_written(run, tmp_path):
    observed = run(f"{STEP}open({str(tmp_path / 'checkpoints' / 'best.pt')!r}, 'w')\n")

    assert "PermissionError" in observed.error
    assert (tmp_path / "checkpoints" / "best.pt").read_text() == "old"


def test_places_are_those_of_the_project(run, tmp_path):
    observed = run(STEP + "1 / 0\n")

    assert (observed.place.file, observed.place.line) == (str(tmp_path / "train.py"), 6)
    (training,) = observed.trainings
    assert {place.file for place in training.places.values()} == {str(tmp_path / "train.py")}


def test_a_script_is_ended_when_its_time_is_over(run):
    observed = run(STEP + "while True:\n    try: pass\n    except Exception: pass\n", limit_seconds=1)

    assert observed.error == "it was ended after 1 s"
    assert observed.num_steps == 1


def test_a_script_that_fails_before_its_first_step_is_refused_with_what_it_wrote(run):
    with pytest.raises(ExecutableError) as caught:
        run("print('before the end')\nraise ValueError('no data')\n")

    assert "no data" in caught.value.finding.message
    assert "before the end" in str(caught.value.finding.notes)
    assert Path(caught.value.finding.place.file).name == "train.py"
