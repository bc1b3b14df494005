"""A program works in a folder where it finds the user's files, and changes none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.verify import working_folder
from porting.verify.plain_runs import PLAIN
from porting.verify.program_proof import ProgramPair, ProgramRuns
from porting.verify.working_folder import link_folder

STEP = """\
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""
CHANGES = (
    "open('runs/log', 'w').write('new')",
    "open('runs/log', 'a').write('new')",
    "open('runs/log', 'r+').write('new')",
    "torch.save(model, 'runs/log')",
    "from torch.serialization import save; save(model, 'runs/log')",
    "import shutil; shutil.rmtree('runs')",
    "import os; os.rename('runs/log', 'runs/other')",
    "import os; os.remove('runs/log')",
    "import os; os.truncate('runs/log', 0)",
    "import pathlib; pathlib.Path('runs/log').chmod(0)",
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "project" / "runs").mkdir(parents=True)
    (tmp_path / "project" / "runs" / "log").write_text("old")
    return tmp_path / "project"


@pytest.mark.usefixtures("fork_programs")
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_program_changes_stays_as_it_was(change, folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("program.py").write_text(f"{STEP}{change}\n")

    (observed,) = ProgramRuns(ProgramPair("program.py", "program.py"), 0, "sim", lambda _stage: None).run_plain(
        1, PLAIN
    )

    assert observed.error == ""
    assert Path("runs/log").read_text() == "old"
    assert {path.name for path in folder.rglob("*")} == {"program.py", "runs", "log"}


@pytest.mark.usefixtures("fork_programs")
def test_what_a_program_adds_to_a_file_comes_after_what_was_there(folder, monkeypatch):
    monkeypatch.chdir(folder)
    added = "open('runs/log', 'a').write('new')\nassert open('runs/log').read() == 'oldnew'\n"
    Path("program.py").write_text(STEP + added)

    (observed,) = ProgramRuns(ProgramPair("program.py", "program.py"), 0, "sim", lambda _stage: None).run_plain(
        1, PLAIN
    )

    assert observed.error == ""


def test_a_working_folder_has_folders_of_its_own_and_links_to_files(folder, tmp_path):
    link_folder(folder, tmp_path / "working")

    assert not (tmp_path / "working" / "runs").is_symlink()
    assert (tmp_path / "working" / "runs" / "log").is_symlink()
    assert (tmp_path / "working" / "runs" / "log").read_text() == "old"


def test_folders_of_too_many_files_are_links(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(working_folder, "_MOST_LINKS", 1)

    link_folder(folder, tmp_path / "working")

    assert (tmp_path / "working" / "runs").is_symlink()
    assert (tmp_path / "working" / "runs" / "log").read_text() == "old"


def test_a_working_folder_in_the_folder_itself_does_not_hold_itself(folder):
    (folder / "tmp").mkdir()

    link_folder(folder, folder / "tmp" / "working")

    assert (folder / "tmp" / "working" / "tmp").is_symlink()


def test_what_lies_beside_the_folder_in_its_project_is_found_there(folder, tmp_path):
    (folder / ".git").mkdir()
    (folder / "programs" / "first").mkdir(parents=True)
    (tmp_path / "working").mkdir()

    link_folder(folder / "programs" / "first", tmp_path / "working" / "0")

    assert (tmp_path / "working" / "0" / ".." / ".." / "runs" / "log").read_text() == "old"


def test_what_lies_above_a_project_is_not_linked(folder, tmp_path):
    (tmp_path / "working").mkdir()

    link_folder(folder, tmp_path / "working" / "0")

    assert not (tmp_path / "working" / "0" / ".." / "project").exists()
