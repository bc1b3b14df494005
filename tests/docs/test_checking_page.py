"""The page on checking shows what happens, and what it says of commits and workflows runs in a repository of git."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest
import yaml

from porting.cli.main import main
from tests.docs.page_blocks import blocks_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "checking.md"
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
YAMLS = [yaml.safe_load(block.source) for block in blocks_of(PAGE) if block.language == "yaml"]
(CONFIGURATION, WORKFLOW) = YAMLS

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def sessions() -> Iterator[Tuple[str, List[str]]]:
    """List the commands of the page and the lines that it shows of their output."""
    for block in blocks_of(PAGE):
        if block.language == "console":
            for step in re.split(r"^\$ porting ", block.source, flags=re.MULTILINE)[1:]:
                command, *shown = step.splitlines()
                yield command, [line for line in shown if line.strip() not in ("", "...")]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Work in a repository with the programs of the page, all of them committed."""
    for block in blocks_of(PAGE):
        if block.language in ("python", "py") and block.source.startswith("# "):
            (tmp_path / block.file_name).write_text(block.source)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("net", "train"):
        sys.modules.pop(name, None)


def run_shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line as a workflow or pre-commit does, with the `porting` of this environment."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line]
    return subprocess.run(words, capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_the_sessions_of_the_page_print_what_it_shows(repository, capsys, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    for command, shown in sessions():
        main(shlex.split(command))

        output = capsys.readouterr().out.splitlines()
        wanted = iter(output)
        # in this order; of the doctor's table the column that differs from machine to machine is left out
        if command != "doctor":
            assert [line for line in shown if not any(line == there for there in wanted)] == [], command
        else:
            probes = {
                line[:25].split(maxsplit=1)[-1].strip() for line in shown if re.match(r"(ok|note|warning) ", line)
            }
            assert len(probes) > 15
            assert {name for name in probes if not any(name in line for line in output)} == set()


def test_the_hook_is_defined_as_pre_commit_demands():
    for hook in HOOKS:
        assert set(hook) >= {"id", "name", "entry", "language"}
        assert set(hook) <= {"id", "name", "description", "entry", "args", "language", "types_or", "pass_filenames"}


def test_the_page_configures_a_hook_that_exists():
    configured = [hook["id"] for repository in CONFIGURATION["repos"] for hook in repository["hooks"]]

    assert set(configured) <= {hook["id"] for hook in HOOKS}


@pytest.mark.parametrize("is_configured", [False, True])
def test_the_hook_finds_what_is_new_in_a_commit(repository, is_configured):
    (hook,) = HOOKS
    ((configured,),) = [repository["hooks"] for repository in CONFIGURATION["repos"]]
    arguments = configured["args"] if is_configured else hook["args"]
    # pre-commit appends the arguments, and names of files only if it is told to
    assert hook["pass_filenames"] is False
    # and runs a script from its clone
    assert hook["language"] == "script"
    command = shlex.join([str(ROOT / hook["entry"]), *arguments])
    run_shell("porting check train.py --baseline known.json --write-baseline")

    before = run_shell(command)
    with open("train.py", "a", encoding="utf-8") as program:
        program.write("    print(loss.item())\n")
    after = run_shell(command)

    assert (before.returncode, after.returncode) == (0 if is_configured else 1, 1)
    assert "print(loss.item())" in after.stdout
    assert "print(loss.item())" not in before.stdout


def test_the_workflow_is_one():
    assert WORKFLOW[True] == ["push", "pull_request"]  # `on` is a truth to YAML 1.1
    for job in WORKFLOW["jobs"].values():
        assert job["runs-on"]
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])


@pytest.mark.parametrize("is_new", [False, True], ids=["nothing new", "something new"])
def test_the_lines_of_the_workflow_run(repository, is_new):
    run_shell("porting check train.py --baseline known.json --write-baseline")
    if is_new:
        with open("train.py", "a", encoding="utf-8") as program:
            program.write("    print(loss.item())\n")
    lines = [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]

    done = [run_shell(line) for line in lines if not line.startswith("pip ")]

    assert [process.returncode for process in done] == [0, int(is_new)]
    assert ("file=train.py,line=14," in done[-1].stdout) is is_new
    assert ('"startLine": 14' in Path("porting.sarif").read_text("utf-8")) is is_new
