"""Builds the wheel once, installs it for each Python that is found, and trains README's ten lines there.

    python -m tests.installed.interpreters            with the environments that are there
    python -m tests.installed.interpreters --make     makes those that are missing: `make pythons`

Each Python has an environment with torch, kept in a cache that all clones share; the Python that runs this needs none,
and 3.8 has that of the hardware path. What was not tested is said, and is no failure.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import Dict, List, Mapping, NamedTuple

from tests.docs.page_blocks import blocks_of
from tests.hardware import environment as hardware_path
from tests.installed.environments import PACKAGES, ROOT, build_wheel, copy_clone, install, make_environment, run
from tests.kept_environments import (
    READY,
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

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = tuple(dict.fromkeys(("3.8", "3.11", "3.12", "3.13", OWN)))
CONSTRAINTS = ROOT / "constraints.txt"
TRAINS, IS_IMPORTED = "the wheel trains the ten lines", "the wheel can be imported; there is no PopTorch to train on"

# what a Python can do whose torch is too old to capture, without PopTorch
WITHOUT_DEVICE = """
import torch
import porting

def is_there(load):
    try:
        load()
    except porting.PortingError as error:
        assert error.finding.code == "C009", error
        return False
    return True

assert sum(is_there(lambda: getattr(porting, name)) for name in porting.__all__) > len(porting.__all__) / 2
assert porting.PortOptions(micro_batch=4, accumulation=2).samples_per_step == 8
assert not is_there(lambda: porting.to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss()))
"""


class NotTestedError(Exception):
    """Nothing is wrong, and nothing was tried: the message says what is missing."""


class Base(NamedTuple):
    """A Python, the folder of packages that it imports, variables for its programs, and whether a port trains on it."""

    python: str = sys.executable
    packages: Path = PACKAGES
    variables: Mapping[str, str] = MappingProxyType({})
    trains: bool = True


def main(arguments: List[str]) -> int:
    """Try the wheel on each Python, say what came of it, and return 1 if it failed on one."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(copy_clone(Path(folder, "clone")), Path(folder))
        for version in VERSIONS:
            try:
                base = find_base(version, makes="--make" in arguments)
                try_wheel(wheel, Path(folder, version), base)
                outcome = TRAINS if base.trains else IS_IMPORTED
            except NotTestedError as reason:
                outcome = f"not tested, {reason}"
            except AssertionError as error:
                failed.append(version)
                outcome = f"FAILED\n{error}"
            print(f"python {version}: {outcome}", flush=True)  # noqa: T201 - it is a command
    return bool(failed)


# -- Pythons ---------------------------------------------------------------------------------------------------------


def find_base(version: str, *, makes: bool) -> Base:
    """Return what a version of Python runs with; NotTestedError where that is not here and is not to be made."""
    if version == OWN:
        return Base()
    python = find_python(version)
    if python is None:
        raise NotTestedError(f"it is not on this machine: install it, or name it by {name_variable(version)}=")
    is_old = version == hardware_path.PYTHON
    if makes:
        try:
            hardware_path.make_environment(python) if is_old else _make_environment(python, version)
        except (OSError, subprocess.CalledProcessError) as error:  # no torch for it, no index, no room
            raise NotTestedError(f"its environment could not be made: {error}") from error
    folder = hardware_path.environment_of(python) if is_old else environment_of(python, version)
    if not ((folder / READY).exists() and has_python(folder, version)):
        raise NotTestedError("its environment is not made: `make pythons`, minutes and 5 GB")
    (packages,) = folder.glob("lib/python3*/site-packages")
    if not is_old:
        return Base(python_in(folder), packages)
    device = _find_device(python_in(folder))
    return Base(python_in(folder), packages, device, trains=bool(device))


def environment_of(python: str, version: str) -> Path:
    """Return the folder of a Python's environment, which need not be there."""
    return cache_folder("pythons") / f"python-{version}-{key_of([], *_list_pinned(), told_by(python) or '')}"


def _make_environment(python: str, version: str) -> None:
    folder = environment_of(python, version)
    made_once(folder, lambda at: _install_pinned(python, at), is_sound=lambda at: has_python(at, version))


def _install_pinned(python: str, folder: Path) -> None:
    print(f"making {folder}, minutes and 5 GB", flush=True)  # noqa: T201
    command = [python_in(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_list_pinned()]
    for words in ([python, "-m", "venv", str(folder)], command):
        subprocess.run(words, check=True, env=clean_environment())


def _list_pinned() -> List[str]:
    """List what the package needs to run, as CI has it."""
    lines = CONSTRAINTS.read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith(("numpy==", "torch==", "tqdm=="))]


def _find_device(python: str) -> Dict[str, str]:
    """Return the variables by which programs find the stand-in for a device; none without the hardware rig."""
    if not hardware_path.RIG.is_dir():
        return {}
    front_end = hardware_path.build_front_end(python, hardware_path.NEWEST)
    return {"PYTHONPATH": str(front_end), "PORTING_DEVICE": "ipu"}


# -- the wheel -------------------------------------------------------------------------------------------------------


def try_wheel(wheel: Path, folder: Path, base: Base) -> str:
    """Install the wheel into a new environment, train the ten lines there, and return what they print.

    AssertionError says what failed.
    """
    python = make_environment(folder / "environment", python=base.python, packages=base.packages)
    install(python, wheel)
    (ten_lines,) = [block.source for block in blocks_of(ROOT / "README.md") if block.file_name == "train.py"]
    (folder / "train.py").write_text(ten_lines if base.trains else WITHOUT_DEVICE, encoding="utf-8")
    variables = {"PORTING_CACHE_DIR": str(folder / "cache"), **base.variables}
    run([python, "-m", "porting", "explain", "C001"], cwd=folder)
    return run([python, "-W", "error", "train.py"], cwd=folder, env=variables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
