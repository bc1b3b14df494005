"""A history is bisected in a work tree of its own, and what cannot be bisected is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from porting.diagnostics import PortingError
from porting.verify.bisection import bisect_history


def git(*words):
    command = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(subject, text):
    Path("trained").write_text(text)
    git("add", "trained")
    git("commit", "--quiet", "--allow-empty", "-m", subject)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Work in a sub-folder of a repository whose fifth commit, after one that does not run, trains something else."""
    (tmp_path / "programs").mkdir()
    monkeypatch.chdir(tmp_path / "programs")
    git("init", "--quiet", "--initial-branch=main")
    for number, text in enumerate(["good 1", "good 2", "good 3", "good 4", "bad 5", "bad 6", "bad 7"], 1):
        commit(f"change {number}", text)
        git("tag", f"v{number}")
    return tmp_path


def judge(folder):
    """Judge a commit by the word in its file."""
    verdict, _space, number = (folder / "trained").read_text().partition(" ")
    return verdict, f"as change {number}"


def bisect(span, told=None):
    return bisect_history(span, judge, (told if told is not None else []).append)


def code_and_message(span):
    with pytest.raises(PortingError) as refused:
        bisect(span)
    return refused.value.code, refused.value.finding.message


def test_the_first_bad_commit_is_found(repository):
    found = bisect("v1..main")

    assert (found.first_bad.subject, found.first_bad.reason) == ("change 5", "as change 5")
    assert "first bad commit: " in str(found)
    assert found.to_dict()["suspects"][0]["verdict"] == "bad"


def test_a_bad_commit_that_follows_a_good_one_is_the_first(repository):
    assert bisect("v4..v5").first_bad.subject == "change 5"


def test_only_some_commits_are_run(repository):
    for number in range(8, 40):
        commit(f"change {number}", f"bad {number}")

    assert len(bisect("v1..main").judged) <= 8


def test_the_commits_are_listed_in_the_order_of_the_history(repository):
    subjects = [one.subject for one in bisect("v1..main").judged]

    assert subjects == sorted(subjects)


def test_progress_names_the_commit_that_is_run(repository):
    told = []

    bisect("v1..main", told)

    assert told[0].startswith("commit ")
    assert told[0].endswith(": change 7")


def test_a_commit_that_cannot_be_run_is_skipped(repository):
    git("checkout", "--quiet", "-b", "other", "v4")
    commit("broken", "skip 4")
    for number in range(8, 12):
        commit(f"change {number}", f"bad {number}")

    found = bisect("v1..other")

    assert found.first_bad is None
    assert [one.subject for one in found.suspects] == ["broken", "change 8"]
    assert "cannot be run: as change 4" in str(found)


def test_merged_branches_are_searched(repository):
    git("checkout", "--quiet", "-b", "side", "v2")
    git("rm", "--quiet", "--cached", "trained")
    commit("side", "bad 3")
    git("checkout", "--quiet", "main")
    git("merge", "--quiet", "-X", "ours", "-m", "merge", "side")

    assert bisect("v1..main").first_bad.subject in ("side", "change 5")


def test_work_tree_index_and_branches_stay_as_they_are(repository):
    Path("trained").write_text("not committed")
    Path("new").write_text("staged")
    git("add", "new")
    before = git("status", "--short", "--branch"), git("branch", "--all"), git("rev-parse", "HEAD")

    bisect("v1..main")

    assert (git("status", "--short", "--branch"), git("branch", "--all"), git("rev-parse", "HEAD")) == before
    assert len(git("worktree", "list").splitlines()) == 1


def test_a_bisection_of_the_users_goes_on(repository):
    git("bisect", "start", "v7", "v1")
    before = git("bisect", "log")

    bisect("v1..v7")

    assert git("bisect", "log") == before


def test_the_work_tree_is_removed_after_an_error(repository):
    def fail(_folder):
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        bisect_history("v1..main", fail, print)

    assert len(git("worktree", "list").splitlines()) == 1


def test_hooks_of_the_user_do_not_run(repository):
    hook = repository / "programs" / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)

    bisect("v1..main")

    assert not list(repository.rglob("ran"))


def test_it_works_within_a_hook_of_git(repository, monkeypatch):
    monkeypatch.setenv("GIT_INDEX_FILE", os.fspath(repository / "another"))

    assert bisect("v1..main").first_bad is not None


def test_a_program_in_a_sub_folder_is_found_in_each_commit(repository, monkeypatch):
    Path("deep").mkdir()
    Path("deep/file").write_text("kept")
    git("add", "deep")
    commit("deep", "bad 8")
    commit("deeper", "bad 9")
    monkeypatch.chdir("deep")
    folders = []

    def look(folder):
        folders.append(folder)
        return ("good", "") if len(folders) == 2 else ("bad", "")

    bisect_history("main~1..main", look, lambda _stage: None)

    assert {folder.name for folder in folders} == {"deep"}


@pytest.mark.parametrize("span", ["v1", "v1..", "..v2", "v1..v2..v3"])
def test_what_is_no_span_is_refused(repository, span):
    assert code_and_message(span) == ("V009", f"`{span}` is no span of commits")


def test_a_commit_that_is_not_there_is_refused(repository):
    assert code_and_message("v1..v99") == ("V009", "there is no commit `v99`")


def test_a_folder_outside_of_a_repository_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code, message = code_and_message("v1..v2")

    assert code == "V009"
    assert "lies in no git repository" in message


def test_a_good_commit_that_is_no_ancestor_is_refused(repository):
    assert code_and_message("v7..v1") == ("V009", "`v7` is no ancestor of `v1`")


def test_a_good_commit_that_is_bad_is_refused(repository):
    _code, message = code_and_message("v6..v7")

    assert message.endswith("is bad, and should be good")


def test_a_bad_commit_that_is_good_is_refused(repository):
    _code, message = code_and_message("v1..v3")

    assert message.endswith("is good, and should be bad")


def test_an_end_that_cannot_be_run_is_refused(repository):
    commit("broken", "skip 8")

    _code, message = code_and_message("v1..main")

    assert message.endswith("cannot be run, and should be bad")


def test_a_machine_without_git_is_told_what_to_install(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert code_and_message("v1..v2") == ("V009", "there is no `git`")
