"""Whoever can write to a cache folder can run code in all processes that load from it, so that only some users may.

These are the user of the process, root, and the user whom PORTING_CACHE_OWNER names. Systems without owners of files,
such as Windows, are not asked.
"""

from __future__ import annotations

import functools
import os
import shlex
import stat
import sys
import tempfile
from pathlib import Path
from typing import Callable, FrozenSet, Iterable, Optional, Set, Union

from ..diagnostics import Finding, OptionError
from .settings import PROGRAMS, find_cache_folder

if sys.platform != "win32":
    import grp
    import pwd

__all__ = [
    "UntrustedError",
    "create_folder",
    "find_trusted_folder",
    "report_untrusted",
    "require_trusted_entry",
    "require_trusted_folder",
    "withdraw_rights",
]

_OWNER_VARIABLE = "PORTING_CACHE_OWNER"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_told: Set[str] = set()


class UntrustedError(Exception):
    """Somebody else can write to `path`; the text says who, `remedies` what helps."""

    def __init__(self, path: Path, message: str, *remedies: str) -> None:
        """Keep the place beside the text."""
        super().__init__(message)
        self.path = path
        self.remedies = remedies


def find_trusted_folder(given: Union[str, os.PathLike[str], None], report: Callable[[Finding], None]) -> Path:
    """Return the cache folder, or where others can write to it one of this process alone, and `report` that (E004)."""
    folder = find_cache_folder(given)
    try:
        require_trusted_folder(folder)
    except UntrustedError as error:
        report_untrusted(folder, error, report)
        return _make_private_folder()
    return folder


def require_trusted_folder(folder: Path) -> None:
    """Raise UntrustedError where others can put executables into the cache folder `folder`."""
    # in a folder such as /tmp nobody can exchange what belongs to another; the owner of each entry is looked at
    _require_trusted([folder, folder / PROGRAMS], may_be_sticky=True)


def require_trusted_entry(folder: Path, names: Iterable[str]) -> None:
    """Raise UntrustedError where others can change an entry's `folder`, the files `names` in it or a folder between."""
    files = [folder.joinpath(*name.split("/")) for name in names]
    between = {parent for path in files for parent in path.parents if folder in parent.parents}
    _require_trusted([folder, *sorted(between), *files])


def report_untrusted(folder: Path, error: UntrustedError, report: Callable[[Finding], None]) -> None:
    """Report (E004), once in a process, that the cache folder `folder` is not used."""
    if str(error.path) in _told:
        return
    _told.add(str(error.path))
    report(
        Finding(
            "E004",
            message=f"the executable cache `{folder}` is not used: {error}",
            notes=(
                "who can write there can run code in each process that loads from it",
                "training works; programs are compiled for this process alone",
            ),
            help=error.remedies,
        )
    )


def create_folder(folder: Path) -> None:
    """Make `folder` and those above it, to which only their owner can write, whatever the process allows otherwise."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(exist_ok=True)  # an error where it is a file


def withdraw_rights(path: Path) -> None:
    """Let nobody but its owner write to the file or folder at `path`."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def _require_trusted(paths: Iterable[Path], *, may_be_sticky: bool = False) -> None:
    # what is not there nobody loads
    for path in paths if hasattr(os, "geteuid") else ():
        try:
            # a link in an entry leads out of what was looked at
            status = os.stat(path) if may_be_sticky else os.lstat(path)
        except OSError:
            continue
        owners = _collect_trusted_owners()
        if status.st_uid not in owners:
            name = _name_user(status.st_uid)
            own = "let PORTING_CACHE_DIR, or `cache_dir`, name a folder of your own"
            raise UntrustedError(
                path, f"`{path}` belongs to {name}", own, f"or trust that user: `export {_OWNER_VARIABLE}={name}`"
            )
        is_sticky = may_be_sticky and bool(status.st_mode & stat.S_ISVTX)
        if _is_open(status) and not is_sticky:
            remedy = f"take the rights of others away: `chmod -R go-w {shlex.quote(str(path))}`"
            raise UntrustedError(path, f"others can write to `{path}`", remedy)


def _is_open(status: os.stat_result) -> bool:
    """Tell whether others than the owner can write; a group of the user's own, which some systems make, is no other."""
    is_private = bool(status.st_mode & stat.S_IWGRP) and _is_own_group(status.st_gid)
    return bool(status.st_mode & (stat.S_IWOTH if is_private else _OTHERS))


def _is_own_group(number: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return user.pw_gid == number and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def _collect_trusted_owners() -> FrozenSet[int]:
    named = _read_named_owner()
    return frozenset([0, os.geteuid()] if named is None else [0, os.geteuid(), named])


def _read_named_owner() -> Optional[int]:
    """Return the number of the user whom the environment names; raises OptionError P005 where there is none."""
    text = os.environ.get(_OWNER_VARIABLE, "").strip()
    if not text or sys.platform == "win32":
        return None
    try:
        return int(text) if text.isdigit() else pwd.getpwnam(text).pw_uid
    except KeyError:
        raise OptionError.of(
            "P005",
            message=f"the environment variable {_OWNER_VARIABLE} is {text!r}, which is no user of this machine",
            help="set it to the name or the number of the user whose executables are to be loaded, or unset it",
        ) from None


def _name_user(number: int) -> str:
    try:
        return str(number) if sys.platform == "win32" else pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


@functools.lru_cache(maxsize=None)
def _keep_temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="porting-")


def _make_private_folder() -> Path:
    """Return a folder that only this process uses, and that is gone when it ends."""
    return Path(_keep_temporary_folder().name)
