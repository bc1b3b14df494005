"""Find the first commit of a git history that trains something else, by git's bisection in a work tree of its own.

`porting verify --bisect` uses it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Tuple

from porting.diagnostics import PortingError, align_columns, join_names

__all__ = ["Bisection", "JudgedCommit", "bisect_history"]

_GOOD, _BAD, _SKIPPED = "good", "bad", "skip"


@dataclass(frozen=True)
class JudgedCommit:
    """A commit that was run, or could not be: `verdict` is git's word, "good", "bad" or "skip"."""

    commit: str
    date: str
    subject: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class Bisection:
    """The commits that were run, the oldest first, and which may be the first bad one: one, or skipped ones too."""

    judged: Tuple[JudgedCommit, ...]
    suspects: Tuple[JudgedCommit, ...]

    @property
    def first_bad(self) -> Optional[JudgedCommit]:
        """The first bad commit; None where commits that could not be run hide it."""
        return self.suspects[0] if len(self.suspects) == 1 else None

    def to_dict(self) -> Dict[str, Any]:
        """Return all of it as plain values, fit for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Lay the table of commits out for a terminal, the first bad one above it."""
        first = self.first_bad
        named = join_names([one.commit for one in self.suspects], quote="")
        found = [f"the first bad commit is one of {named}: some of them cannot be run", self.suspects[-1].reason]
        if first is not None:
            found = [f"first bad commit: {first.commit} {first.subject}", f"{first.date}: {first.reason}"]
        rows = [(one.commit, one.date[:10], one.verdict, one.subject) for one in self.judged]
        skipped = [f"{one.commit} cannot be run: {one.reason}" for one in self.judged if one.verdict == _SKIPPED]
        return "\n".join([*found, "", *align_columns(rows), *skipped])


def bisect_history(span: str, judge: Callable[[Path], Tuple[str, str]], tell: Callable[[str], None]) -> Bisection:
    """Find the first commit of `GOOD..BAD` that `judge` calls bad, given the present folder as a commit has it.

    `judge` returns "good", "bad" or "skip" and why. Work tree, index and branches of the user are not touched. Raises
    PortingError V009 where GOOD is not good, BAD is not bad, GOOD is no ancestor of BAD, or there is no such history.
    """
    good, bad = _read_span(span)
    judged: List[JudgedCommit] = []

    def judge_present(tree: Path) -> JudgedCommit:
        commit, date, subject = _run_git("log", "-1", "--format=%h%x00%ai%x00%s", folder=tree).split("\0")
        tell(f"commit {commit}: {subject}")
        judged.append(JudgedCommit(commit, date, subject, *judge(tree / _run_git("rev-parse", "--show-prefix"))))
        return judged[-1]

    with _work_tree(bad) as tree:
        _require_verdict(judge_present(tree), _BAD, "name a later commit that is")
        _run_git("checkout", "--quiet", "--detach", good, folder=tree)
        _require_verdict(judge_present(tree), _GOOD, "name an earlier commit that is")
        said = _run_git("bisect", "start", bad, good, folder=tree)
        while "first bad commit" not in said:
            said = _run_git("bisect", judge_present(tree).verdict, folder=tree, is_checked=False)
    order = [good, *_run_git("rev-list", "--topo-order", "--reverse", f"{good}..{bad}").split()]
    judged.sort(key=lambda one: next(place for place, commit in enumerate(order) if commit.startswith(one.commit)))
    # one, or those of which git says that each could be it
    named = [line.split()[0] for line in said.splitlines() if line.split() and line.split()[0] in order]
    return Bisection(tuple(judged), tuple(one for one in judged if any(name.startswith(one.commit) for name in named)))


def _read_span(span: str) -> Tuple[str, str]:
    """Return the ids of both ends of `GOOD..BAD`."""
    ends = span.split("..")
    if len(ends) != 2 or not all(ends):
        _refuse_span(f"`{span}` is no span of commits", "give two commits, as `--bisect v1.0..HEAD`")
    if not _run_git("rev-parse", "--show-toplevel", is_checked=False).startswith("/"):
        _refuse_span(
            f"`{Path.cwd()}` lies in no git repository", "run it in the folder of the program, in its repository"
        )
    found = [_run_git("rev-parse", "--verify", "--quiet", f"{end}^{{commit}}", is_checked=False) for end in ends]
    for end, commit in zip(ends, found):
        if not commit:
            _refuse_span(f"there is no commit `{end}`", "name commits that `git log` shows, or fetch them")
    if _run_git("merge-base", *found, is_checked=False) != found[0]:
        _refuse_span(f"`{ends[0]}` is no ancestor of `{ends[1]}`", f"begin at `git merge-base {ends[0]} {ends[1]}`")
    return found[0], found[1]


@contextmanager
def _work_tree(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="porting-bisect-") as folder:
        tree = Path(folder).resolve() / "tree"
        _run_git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _run_git("worktree", "remove", "--force", str(tree))


def _run_git(*words: str, folder: Optional[Path] = None, is_checked: bool = True) -> str:
    """Run git in English without the user's hooks, and return what it says."""
    # within a hook of git's, its variables name another index and work tree
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["LC_ALL"] = "C"
    command = ["git", "-c", f"core.hooksPath={os.devnull}", *words]
    options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT if is_checked else subprocess.DEVNULL}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, text=True, check=False, **options)
    except FileNotFoundError:
        _refuse_span("there is no `git`", "install git")
    if is_checked and done.returncode:
        _refuse_span(f"`git {words[0]}` failed: {done.stdout.strip()}", "put that right, and run it again")
    return done.stdout.strip()


def _require_verdict(found: JudgedCommit, verdict: str, help: str) -> None:
    if found.verdict != verdict:
        said = "cannot be run" if found.verdict == _SKIPPED else f"is {found.verdict}"
        _refuse_span(f"commit {found.commit} {said}, and should be {verdict}", help, found.reason)


def _refuse_span(message: str, help: str, note: str = "") -> NoReturn:
    raise PortingError.of("V009", message=message, notes=(note,) if note else (), help=help)
