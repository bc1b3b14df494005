"""Pythons that are found on this machine, and folders that are made once, in a cache that all clones share."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

__all__ = [
    "READY",
    "cache_folder",
    "clean_environment",
    "find_python",
    "has_python",
    "key_of",
    "made_once",
    "name_variable",
    "python_in",
    "told_by",
]

READY = "ready"
# what making an environment needs of a Python besides its version; a distribution may leave either out
PROBE = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"


# -- Pythons ---------------------------------------------------------------------------------------------------------


def find_python(version: str) -> Optional[str]:
    """Return a Python that can make environments: that of the variable, the one on the path, or pyenv's newest."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    of_pyenv = glob.glob(os.path.join(glob.escape(pyenv), "versions", f"{version}[.-]*", "bin", "python"))
    candidates = [
        os.environ.get(name_variable(version)),
        shutil.which(f"python{version}"),
        *sorted(of_pyenv, reverse=True),
    ]
    return next((python for python in candidates if python and is_python(python, version)), None)


def name_variable(version: str) -> str:
    """Return the name of the variable by which a Python is chosen.

    >>> name_variable("3.8")
    'PYTHON38'
    """
    return f"PYTHON{version.replace('.', '')}"


def is_python(python: str, version: str) -> bool:
    """Tell by running it: pyenv leaves a command on the path that fails where another version is chosen."""
    told = told_by(python)
    return told is not None and told.split()[0] == version


def told_by(python: str) -> Optional[str]:
    """Return the version and the place of a Python, or None where it does not start."""
    with contextlib.suppress(OSError):
        done = subprocess.run(
            [python, "-c", PROBE], capture_output=True, text=True, check=False, env=clean_environment()
        )
        return done.stdout.strip() if done.returncode == 0 else None
    return None


def clean_environment() -> Dict[str, str]:
    """Return the variables of this process without those for another Python's modules, and for this package."""
    theirs = ("PYTHONHOME", "PYTHONPATH", "PORTING_")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)}


def python_in(folder: Path) -> str:
    """Return the Python of an environment."""
    return str(folder / "bin" / "python")


def has_python(folder: Path, version: str) -> bool:
    """Tell whether an environment's Python still starts: it outlives the Python that it was made from."""
    return is_python(python_in(folder), version)


# -- the cache -------------------------------------------------------------------------------------------------------


def cache_folder(name: str) -> Path:
    """Return a folder for environments, outside all checkouts."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "ipu-porting" / name


def made_once(folder: Path, make: Callable[[Path], None], *, is_sound: Callable[[Path], bool] = Path.is_dir) -> None:
    """Make a folder unless it is there and sound; what was begun and not finished is begun anew.

    Only one process makes it, others wait. The mark of a finished folder is written last.
    """
    with _locked(folder):
        if (folder / READY).exists() and is_sound(folder):
            return
        if folder.exists():
            shutil.rmtree(folder)
        make(folder)
        (folder / READY).touch()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:  # the kernel gives it free when a process dies
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def key_of(files: List[Path], *facts: str) -> str:
    """Return a part of a folder's name that tells what it was made from."""
    made = hashlib.sha256("\n".join(facts).encode())
    for file in files:
        made.update(file.name.encode() + b"\0" + file.read_bytes())
    return made.hexdigest()[:16]
