"""Environments to install into: one has no package of its own and finds those of another, so nothing is downloaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Union

import torch

from tests.kept_environments import clean_environment, python_in

__all__ = [
    "PACKAGES",
    "ROOT",
    "build_wheel",
    "copy_clone",
    "install",
    "make_bare_environment",
    "make_environment",
    "run",
]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(torch.__file__).resolve().parents[1]
"""The folder of the packages that this Python imports."""

_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")


def make_bare_environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with a wheel and nothing else, no package of this one; return its folder of commands."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    run([sys.executable, "-m", "pip", "--python", python_in(folder), *_INSTALL[2:], str(wheel)])
    return folder / "bin"


def make_environment(folder: Path, *, python: str = sys.executable, packages: Path = PACKAGES) -> str:
    """Make an environment of `python` that imports from `packages`, and return its Python.

    What an editable install has written into `packages` does not count in it.
    """
    run([python, "-m", "venv", "--without-pip", str(folder)])
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n", encoding="utf-8")
    return python_in(folder)


def install(python: str, *what: Union[str, Path]) -> None:
    """Install into the environment of `python` with what is there."""
    run([python, *_INSTALL, "--no-build-isolation", *map(str, what)])


def build_wheel(source: Path, folder: Path) -> Path:
    """Build the wheel of a copy of a clone, or of a source archive, into `folder`."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    run([*build, "--wheel-dir", str(folder), str(source)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def run(command: Any, **settings: Any) -> str:
    """Run a command without the settings of this process, and return what it prints; AssertionError if it fails."""
    environment = {**clean_environment(), "OMP_NUM_THREADS": "1", **settings.pop("env", {})}
    done = subprocess.run([*command], capture_output=True, text=True, check=False, env=environment, **settings)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def copy_clone(folder: Path) -> Path:
    """Copy what a clone has: setuptools leaves folders behind, and packs what an earlier build has left there."""
    skipped = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "out", "*.egg-info")
    return Path(shutil.copytree(ROOT, folder, symlinks=True, ignore=skipped))
