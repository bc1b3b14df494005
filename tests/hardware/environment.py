"""Runs the tests of this folder on Python 3.8 and torch 2.0.1, over PopTorch's own front ends: `make hardware-path`.

    python -m tests.hardware.environment [what pytest takes]

The environment and the front ends lie in a cache that all clones share. Where there is no Python 3.8, or no hardware
rig beside the checkout, one line says so and the exit status is 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, List, Optional

from tests.kept_environments import (
    cache_folder,
    clean_environment,
    find_python,
    has_python,
    key_of,
    made_once,
    name_variable,
    python_in,
    told_by,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RIG = ROOT.parent / "shared" / "hardware-rig"
REQUIREMENTS = HERE / "requirements.txt"
PYTHON = "3.8"
CACHE = "hardware-path"
NEWEST, OLDER = "3.4", "3.3"
# what the executor has a part in: the front ends differ in one statement of it, and all tests run over the newest
MAY_DIFFER = (
    "test_releases.py",
    "test_command.py",
    "test_training.py",
    "test_weights.py",
    "test_stages.py",
    "test_options.py",
)


def main(arguments: List[str]) -> int:
    """Make what is missing, run the tests, and return their exit status."""
    if not RIG.is_dir():
        return _say_skipped(f"no hardware rig: {os.path.relpath(RIG, ROOT)} does not exist")
    python = find_python(PYTHON)
    if python is None:
        return _say_skipped(f"no Python {PYTHON} that works: install one, or name it by {name_variable(PYTHON)}=")
    try:
        environment = make_environment(python)
    except (OSError, subprocess.CalledProcessError) as error:  # no index to install from, no room
        return _say_skipped(f"its environment could not be made: {error}")
    return run_tests(python_in(environment), arguments)


def _say_skipped(reason: str) -> int:
    print(f"hardware path: not tested, {reason}")  # noqa: T201 - it is a command
    return 0


# -- what lies in it -------------------------------------------------------------------------------------------------


def environment_of(python: str) -> Path:
    """Return the folder of the environment, which need not be there."""
    return cache_folder(CACHE) / f"python-{key_of([REQUIREMENTS], told_by(python) or '')}"


def make_environment(python: str) -> Path:
    """Make a virtual environment with exactly what REQUIREMENTS lists, unless it is there, and return its folder."""
    folder = environment_of(python)
    made_once(folder, lambda at: _install(python, at), is_sound=lambda at: has_python(at, PYTHON))
    return folder


def _install(python: str, folder: Path) -> None:
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


def build_front_end(python: str, release: str) -> Path:
    """Build PopTorch's front end of a release with the rig's own program, unless it is there, and return its folder."""
    sources = sorted(path for path in RIG.rglob("*") if path.suffix in (".py", ".json"))
    folder = cache_folder(CACHE) / f"front-end-{release}-{key_of(sources)}"
    command = [python, str(RIG / "build_front_end.py"), "--sdk", release]
    made_once(folder, lambda at: _run([*command, str(at)], quiet=True))
    return folder


def _run(command: List[str], *, quiet: bool = False) -> None:
    output = subprocess.DEVNULL if quiet else None
    subprocess.run(command, check=True, env=clean_environment(), stdout=output)


# -- the tests -------------------------------------------------------------------------------------------------------


def run_tests(python: str, arguments: List[str]) -> int:
    """Run pytest on this folder over both front ends at once, and return the worse exit status.

    What is printed over the older one is shown when the newest has ended.
    """
    older = arguments or [str(HERE / name) for name in MAY_DIFFER]
    with tempfile.TemporaryFile("w+") as output, _start(python, OLDER, older, output) as beside:
        print(f"hardware path: PopTorch {NEWEST}", flush=True)  # noqa: T201
        status = _start(python, NEWEST, arguments or [str(HERE)]).wait()
        status = max(status, beside.wait())
        output.seek(0)
        print(f"hardware path: PopTorch {OLDER}\n{output.read()}", flush=True)  # noqa: T201
    return status


def _start(python: str, release: str, tests: List[str], output: Optional[IO[str]] = None) -> subprocess.Popen[bytes]:
    variables = {
        **clean_environment(),
        "PYTHONPATH": os.pathsep.join([str(build_front_end(python, release)), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "PORTING_SIMULATOR_PYTHON": sys.executable,
    }
    # the settings and fixtures of the other tests are for another pytest, and for packages that are not there
    settings = ["-c", str(HERE / "hardware_path.ini"), "--rootdir", str(HERE), "--confcutdir", str(HERE)]
    return subprocess.Popen([python, "-m", "pytest", *settings, *tests], cwd=ROOT, env=variables, stdout=output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
