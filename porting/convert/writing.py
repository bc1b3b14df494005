"""Write a converted project: beside the old one as links, in a folder of its own, or in the place of its files.

In the place of its files it is written as a whole or not at all, and only over what somebody can get back.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional

from porting.convert.journal import change_files, make_folder
from porting.diagnostics import PortingError
from porting.support.project_copies import copy_project, is_within

__all__ = ["require_destination", "write_project"]

# of files in a copy; larger ones are data, and linked
_MOST_BYTES = 16 << 20
_LEFT_OUT = (".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules")


def write_project(
    root: Path, changed: Mapping[str, bytes], *, before: Mapping[str, bytes], out: Optional[Path] = None
) -> List[str]:
    """Write changed and new files, by their paths in `root`, or a whole project with them at `out`.

    `before` are the bytes that were read of those that are not new. What a project at `out` only links to, large files
    and folders of many, is listed. Raises PortingError, with nothing written: X009 for a file that is no longer what
    was read, X026 for one with changes that are not committed, E029 for one that cannot be written, R002 where `out` is
    there already, X027 where another conversion writes here.
    """
    changed = {name: content for name, content in changed.items() if before.get(name) != content}
    _require_unchanged(root, changed, before)
    try:
        require_destination(root, changed, before=before, out=out)
        if out is not None:
            return _write_copy(root, changed, out)
        paths = {name: Path(os.path.realpath(root / name)) for name in changed}
        known = {paths[name]: before[name] for name in changed if name in before}
        if changed:
            change_files(root, {paths[name]: content for name, content in changed.items()}, known)
        return []
    except OSError as error:
        where = "" if error.filename is None else f"`{os.fsdecode(error.filename)}`: "
        raise PortingError.of(
            "E029",
            message=f"the project cannot be written, and is as it was: {where}{error.strerror or error}",
            help="make room and let this user write there, or write elsewhere: `--out DIR`",
        ) from error


def require_destination(
    root: Path, changed: Mapping[str, bytes], *, before: Mapping[str, bytes], out: Optional[Path] = None
) -> None:
    """Raise PortingError where a project will not be written, as far as it is known beforehand: R002, E029, X026."""
    if out is None:
        paths = {name: Path(os.path.realpath(root / name)) for name in changed}
        for name, path in paths.items():
            _require_writable(root / name, path)
        _require_committed(root, [path for name, path in paths.items() if name in before])
        return
    # a folder that begins in the project would be copied into itself
    is_inside = Path(os.path.realpath(root)) in Path(os.path.realpath(out)).parents
    if os.path.lexists(out) or is_inside:
        why = "lies in the project that it is a copy of" if is_inside else "exists already"
        raise PortingError.of("R002", message=f"`{out}` {why}", help="name a folder that is new: `--out DIR`")


def _write_copy(root: Path, changed: Mapping[str, bytes], out: Path) -> List[str]:
    destination = out.absolute()
    destination.parent.mkdir(parents=True, exist_ok=True)
    with make_folder(destination) as folder:
        return copy_project([root], folder, most_bytes=_MOST_BYTES, changed=changed, left_out=_LEFT_OUT)


def _require_unchanged(root: Path, changed: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    for name in changed:
        path = root / name
        now = path.read_bytes() if path.is_file() else None
        if now != before.get(name):
            fault = "is there by now" if name not in before else "has changed since it was read"
            raise PortingError.of("X009", message=f"`{path}` {fault}", help="run `porting convert` again")


def _require_writable(path: Path, real: Path) -> None:
    """Raise E029 for a file that its owner has made read-only, which does not keep the owner of its folder off."""
    if real.exists() and not (os.access(real, os.W_OK) and real.stat().st_mode & 0o222):
        raise PortingError.of(
            "E029",
            message=f"`{path}` is read-only",
            help=f"let it be written, `chmod u+w {path}`, or write elsewhere: `--out DIR`",
        )


# -- version control ---------------------------------------------------------------------------------------------------


def _require_committed(root: Path, paths: Iterable[Path]) -> None:
    """Raise X026 for files that Git could not give back as they are."""
    by_folder: Dict[Path, List[str]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path.name)
    found = [f"{folder / name}" for folder, names in by_folder.items() for name in _list_lost(root, folder, names)]
    if found:
        more = f", and so have {len(found) - 1} more" if len(found) > 1 else ""
        raise PortingError.of(
            "X026",
            message=f"`{found[0]}` has changes that are not committed{more}",
            notes=tuple(f"`{path}`, too" for path in found[1:]),
            help="commit them, `git commit`, or put them aside, `git stash`; or write elsewhere: `--out DIR`",
        )


def _list_lost(root: Path, folder: Path, names: List[str]) -> List[str]:
    """List those of a folder's files that are not as they are in the last commit of a project that has any."""
    top = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)
    if top is None:
        return []
    scope = os.path.realpath(root) if is_within(str(root), top) else str(top)
    if not _ask_git(folder, "ls-files", "-z", "--", scope):
        return []
    words = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--")
    told = _ask_git(folder, *words, *(f":(literal){name}" for name in names))
    return [os.path.basename(entry[3:]) for entry in told.split("\0") if entry]


def _ask_git(folder: Path, *words: str) -> str:
    # a hook's variables name another repository, and no command of ours changes an index
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(folder), *words]
    fault = "there is no `git`"
    with suppress(FileNotFoundError):
        asked = subprocess.run(command, capture_output=True, env=environment, check=False)
        if not asked.returncode:
            return asked.stdout.decode("utf-8", "surrogateescape")
        fault = asked.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    raise PortingError.of(
        "X026",
        message=f"Git does not tell whether files of `{folder}` are committed: {fault}",
        help="let `git status` work there, or write elsewhere: `--out DIR`",
    )
