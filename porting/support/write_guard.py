"""Keep what a program writes in a copy of its project: what is only linked there is copied first.

A program that names the project itself, by an absolute path, may read it; to write there is refused.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Sequence, Tuple

from porting.support.project_copies import is_within

__all__ = ["WriteGuard"]

# which arguments of an event are paths that it changes, and whether it changes what a link there leads to
_CHANGED: Dict[str, Tuple[Sequence[int], bool]] = {
    "open": ((0,), True),
    "os.chmod": ((0,), True),
    "os.link": ((1,), False),
    "os.mkdir": ((0,), False),
    "os.remove": ((0,), False),
    "os.rename": ((0, 1), False),
    "os.rmdir": ((0,), False),
    "os.symlink": ((1,), False),
    "os.truncate": ((0,), True),
    "os.utime": ((0,), True),
    "shutil.rmtree": ((0,), True),
    "sqlite3.connect": ((0,), True),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class WriteGuard:
    """Watches this process for as long as it lives: `copy` is where it works, `roots` hold the project."""

    def __init__(self, copy: Path, roots: Sequence[Path]) -> None:
        """Begin to watch; no program can end it."""
        self._copy, self._roots = copy, roots
        self._own = threading.local()
        sys.addaudithook(self._follow_event)

    def free(self, path: Any, *, follows: bool = True) -> None:
        """Make a path ready to be written: what leads out of the copy there is copied; PermissionError elsewhere."""
        if isinstance(path, int) or path is None or getattr(self._own, "is_busy", False):
            return
        self._own.is_busy = True
        try:
            whole = os.path.abspath(os.fsdecode(path))
            if whole.startswith(f"{self._copy}{os.sep}"):
                self._free_parts(Path(whole), follows=follows)
            elif self._is_guarded(whole if follows else os.path.dirname(whole)):
                raise PermissionError(errno.EACCES, "a proof leaves the project as it is", whole)
        finally:
            self._own.is_busy = False

    def _follow_event(self, event: str, args: Tuple[Any, ...]) -> None:
        known = _CHANGED.get(event)
        if known is None or event == "open" and not (isinstance(args[2], int) and args[2] & _WRITES):
            return
        for place in known[0]:
            self.free(args[place], follows=known[1])

    def _is_guarded(self, path: str) -> bool:
        return any(is_within(path, root) for root in self._roots)

    def _free_parts(self, path: Path, *, follows: bool) -> None:
        parts = path.relative_to(self._copy).parts
        for number in range(1, len(parts) + follows):
            link = self._copy.joinpath(*parts[:number])
            if link.is_symlink() and self._is_guarded(str(link)):
                _copy_target(link)


def _copy_target(link: Path) -> None:
    """Put a copy in the place of a link: of a file its bytes, of a folder links to what is in it."""
    target = Path(os.path.realpath(link))
    if not target.exists():
        raise PermissionError(errno.EACCES, "a proof leaves the project as it is", str(link))
    link.unlink()
    if target.is_dir():
        link.mkdir()
        for entry in os.listdir(target):
            (link / entry).symlink_to(target / entry)
    else:
        shutil.copy2(target, link)
