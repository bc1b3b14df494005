"""Machines that are made up: programs on PATH, variables, and libraries that can be imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


class Machine:
    """A folder of programs that is all of PATH, and one of packages that children import."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = monkeypatch
        self.programs, self.packages = folder / "bin", folder / "packages"
        self.programs.mkdir()
        self.packages.mkdir()
        for name in list(os.environ):
            if name.startswith(("IPUOF_", "POPDIST_", "OMPI_", "POPLAR_")) or name in ("RANK", "WORLD_SIZE", "CXX"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("PATH", str(self.programs))
        monkeypatch.syspath_prepend(str(self.packages))

    def add_program(self, name: str, script: str) -> None:
        """Put a shell script on PATH."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        path.chmod(0o755)

    def add_package(self, name: str, text: str) -> None:
        """Put a module in front of all that are installed."""
        (self.packages / f"{name}.py").write_text(text)

    def set(self, **variables: object) -> None:
        """Set variables of the environment."""
        for name, value in variables.items():
            self.patch.setenv(name, str(value))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Make a machine without any program."""
    if sys.platform == "win32":
        pytest.skip("the programs are shell scripts")
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def code_of():
    """Return the code of a probe's finding, None where there is none."""
    return lambda probe: None if probe.finding is None else probe.finding.code
