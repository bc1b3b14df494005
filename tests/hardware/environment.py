"""Runs the tests of this folder on Python 3.8 and torch 2.0.1, over PopTorch's own front end: `make hardware-path`.

    python -m tests.hardware.environment [what pytest takes]

The environment and the front end lie in a cache that all clones share. Where there is no Python 3.8, or no hardware rig
beside the checkout, one line says so and the exit status is 0.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RIG = ROOT.parent / "shared" / "hardware-rig"
REQUIREMENTS = HERE / "requirements.txt"
READY = "ready"
# what `make_environment` needs of a Python besides its version; a distribution may leave either out
PROBE = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"


def main(arguments: List[str]) -> int:
    """Make what is missing, run the tests, and return their exit status."""
    if not RIG.is_dir():
        return _say_skipped(f"no hardware rig: {os.path.relpath(RIG, ROOT)} does not exist")
    python = find_python()
    if python is None:
        return _say_skipped("no Python 3.8 that works: install one, or name it by PYTHON38=")
    cache = cache_folder()
    environment = cache / f"python-{_key_of([REQUIREMENTS], _told_by(python) or '')}"
    # an environment outlives the Python it was made from
    try:
        made_once(environment, lambda folder: make_environment(python, folder), is_sound=has_working_python)
    except (OSError, subprocess.CalledProcessError) as error:  # no index to install from, no room
        return _say_skipped(f"its environment could not be made: {error}")
    own_python = python_in(environment)
    sources = sorted(path for path in RIG.rglob("*") if path.suffix in (".py", ".json"))
    front_end = cache / f"front-end-{_key_of(sources)}"
    made_once(front_end, lambda folder: build_front_end(own_python, folder))
    return run_tests(own_python, front_end, arguments)


def _say_skipped(reason: str) -> int:
    print(f"hardware path: not tested, {reason}")  # noqa: T201 - it is a command
    return 0


# -- Python 3.8 ------------------------------------------------------------------------------------------------------


def find_python() -> Optional[str]:
    """Return a Python 3.8 that can make environments: PYTHON38, the one on the path, or pyenv's newest."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    of_pyenv = sorted(glob.glob(os.path.join(glob.escape(pyenv), "versions", "3.8*", "bin", "python")), reverse=True)
    candidates = [os.environ.get("PYTHON38"), shutil.which("python3.8"), *of_pyenv]
    return next((python for python in candidates if python and is_python_38(python)), None)


def is_python_38(python: str) -> bool:
    """Tell by running it: pyenv leaves a command on the path that fails where another version is chosen."""
    told = _told_by(python)
    return told is not None and told.split()[0] == "3.8"


def _told_by(python: str) -> Optional[str]:
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


# -- the cache -------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder for environments and front ends, outside all checkouts."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "ipu-porting" / "hardware-path"


def made_once(folder: Path, make: Callable[[Path], None], *, is_sound: Callable[[Path], bool] = Path.is_dir) -> None:
    """Let `make` fill `folder` unless that was done before; what was begun and not finished is begun anew.

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


def _key_of(files: List[Path], *facts: str) -> str:
    made = hashlib.sha256("\n".join(facts).encode())
    for file in files:
        made.update(file.name.encode() + b"\0" + file.read_bytes())
    return made.hexdigest()[:16]


# -- what lies in it -------------------------------------------------------------------------------------------------


def make_environment(python: str, folder: Path) -> None:
    """Make a virtual environment with exactly what REQUIREMENTS lists."""
    print(f"hardware path: making {folder}, minutes and 3 GB", flush=True)  # noqa: T201
    _run([python, "-m", "venv", str(folder)])
    # without dependencies: those of torch would bring a compiler for GPUs, and what it needs, along
    install = [
        "install",
        "--quiet",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-compile",
        "--only-binary=:all:",
    ]
    _run([python_in(folder), "-m", "pip", *install, "--requirement", str(REQUIREMENTS)])
    # libcudnn.so loads its parts on a GPU only: 0.9 GB
    for part in folder.glob("lib/python3.8/site-packages/nvidia/cudnn/lib/libcudnn_*"):
        part.unlink()


def has_working_python(folder: Path) -> bool:
    """Tell whether the environment's Python still starts."""
    return is_python_38(python_in(folder))


def python_in(folder: Path) -> str:
    """Return the Python of an environment."""
    return str(folder / "bin" / "python")


def build_front_end(python: str, folder: Path) -> None:
    """Build PopTorch's front end with the rig's own program."""
    _run([python, str(RIG / "build_front_end.py"), str(folder)], quiet=True)


def _run(command: List[str], *, quiet: bool = False) -> None:
    output = subprocess.DEVNULL if quiet else None
    subprocess.run(command, check=True, env=clean_environment(), stdout=output)


# -- the tests -------------------------------------------------------------------------------------------------------


def run_tests(python: str, front_end: Path, arguments: List[str]) -> int:
    """Run pytest on this folder in the environment, and return its exit status."""
    variables = {
        **clean_environment(),
        "PYTHONPATH": os.pathsep.join([str(front_end), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "PORTING_SIMULATOR_PYTHON": sys.executable,
    }
    # the settings and fixtures of the other tests are for another pytest, and for packages that are not there
    settings = ["-c", str(HERE / "hardware_path.ini"), "--rootdir", str(HERE), "--confcutdir", str(HERE)]
    return subprocess.run(
        [python, "-m", "pytest", *settings, *(arguments or [str(HERE)])], cwd=ROOT, env=variables
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
