"""Make a second tree of a project: folders of its own, in which what is not changed is copied or linked.

Whoever works in it finds all of the project; guards keep what is written there away from the project itself.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Collection, Dict, List, Mapping, Sequence, Set, Tuple

__all__ = ["copy_project", "find_project", "is_within", "link_project"]

# A folder of more entries than this holds data, and so does what lies behind so many entries, or bytes, altogether.
_MOST_IN_FOLDER, _MOST_ENTRIES, _MOST_COPIED = 2_000, 20_000, 256 << 20
_SOURCES = (".py", ".pyi", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".cfg")


def link_project(root: Path, changed: Mapping[str, bytes], into: Path) -> None:
    """Make a tree of changed and new files, by their paths in `root`, and of links to all else that is in it.

    Folders that hold a changed file are folders, so that what is imported beside it is changed, too; links that stay in
    the project stay links in the tree.
    """
    changed = _name_really(root, changed)
    real = {str(above) for name in changed for above in Path(name).parents}
    waiting = ["."]
    while waiting:
        folder = waiting.pop()
        (into / folder).mkdir(parents=True, exist_ok=True)
        for entry in _list_entries(root / folder):
            name = os.path.normpath(os.path.join(folder, entry.name))
            if name in real:
                waiting.append(name)
            elif name not in changed:
                os.symlink(_find_target(root, root / name), into / name)
    _write_changed(root, changed, into)


def copy_project(
    roots: Sequence[Path],
    into: Path,
    *,
    most_bytes: int,
    changed: Mapping[str, bytes],
    left_out: Collection[str] = (),
) -> List[str]:
    """Copy the first of `roots`, and list the names that are links there: of large files and of folders of many.

    Links that stay in it stay what they are, and those that lead to another root are followed. `left_out` are names of
    files and folders that no copy needs.
    """
    changed = _name_really(roots[0], changed)
    waiting: List[Tuple[Path, str]] = [(roots[0], ".")]
    seen, linked, num_entries, room = {os.path.realpath(roots[0])}, [], 0, _MOST_COPIED
    while waiting:
        source, folder = waiting.pop(0)
        (into / folder).mkdir(parents=True, exist_ok=True)
        for entry in _list_entries(source):
            name, path = os.path.normpath(os.path.join(folder, entry.name)), source / entry.name
            if entry.name in left_out or name in changed:
                continue
            num_entries += 1
            kept = _find_target(roots[0], path) if path.is_symlink() else ""
            if kept and (not os.path.isabs(kept) or not any(is_within(kept, root) for root in roots)):
                os.symlink(kept, into / name)
            elif path.is_dir() and num_entries < _MOST_ENTRIES and _is_followed(path, seen):
                waiting.append((path, name))
            elif _copy_file(path, into / name, min(room, most_bytes)):
                room -= path.stat().st_size
            else:
                os.symlink(os.path.realpath(path), into / name)
                linked.append(name)
    _write_changed(roots[0], changed, into)
    return linked


def find_project(folder: Path) -> Path:
    """Find the folder of the Git project that a folder lies in; the folder itself where it lies in none."""
    whole = Path(os.path.abspath(folder))
    return next((one for one in (whole, *whole.parents) if (one / ".git").exists()), whole)


def is_within(path: str, folder: Path) -> bool:
    """Tell whether a path is a folder, or lies in it; links are followed.

    >>> is_within("/usr/lib/python3", Path("/usr")), is_within("/usrlocal", Path("/usr"))
    (True, False)
    """
    real, above = os.path.realpath(path), os.path.realpath(folder)
    return real == above or real.startswith(above.rstrip(os.sep) + os.sep)


def _list_entries(folder: Path) -> List[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _name_really(root: Path, changed: Mapping[str, bytes]) -> Dict[str, bytes]:
    """Name files by where they lie in a project, whatever links lead there."""
    paths = {os.path.realpath(root / name): name for name in changed}
    return {
        os.path.relpath(path, os.path.realpath(root)) if is_within(path, root) else name: changed[name]
        for path, name in paths.items()
    }


def _find_target(root: Path, path: Path) -> str:
    """Return where a link in another tree leads: to its own twin where the target is in `root`, else to the target."""
    target = os.path.realpath(path)
    if path.is_symlink() and is_within(target, root):
        here = os.path.realpath(path.parent)
        if is_within(here, root):
            return os.path.relpath(target, here)
    return target


def _is_followed(path: Path, seen: Set[str]) -> bool:
    """Tell whether a folder is copied: not one of too many entries, nor an environment, nor one of those above it."""
    real = os.path.realpath(path)
    if real in seen or os.path.basename(real) == ".git" or os.path.exists(os.path.join(real, "pyvenv.cfg")):
        return False
    seen.add(real)
    with os.scandir(real) as entries:
        return sum(1 for _entry in zip(range(_MOST_IN_FOLDER + 1), entries)) <= _MOST_IN_FOLDER


def _copy_file(path: Path, copy: Path, most_bytes: int) -> bool:
    """Copy a file that is small, or a source; nothing happens to others."""
    is_small = path.is_file() and (path.stat().st_size <= most_bytes or path.suffix in _SOURCES)
    with suppress(PermissionError):  # a link tells its reader as much
        if is_small:
            shutil.copy2(path, copy)
            return True
    return False


def _write_changed(root: Path, changed: Mapping[str, bytes], into: Path) -> None:
    for name, content in changed.items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_bytes(content)
        if (root / name).exists():
            shutil.copymode(root / name, into / name)
