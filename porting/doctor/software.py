"""Probe the software: Python, torch, the packages that everything needs, and PopTorch.

Torch and PopTorch are imported in processes of their own: a library that crashes or hangs is a finding, too.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from porting.diagnostics import Finding, Severity
from porting.doctor.probes import Answer, Probe, ask_program
from porting.support.bound_process import make_environment
from porting.support.poptorch_releases import TESTED_RELEASES, name_release
from porting.support.torch_versions import find_tested
from porting.support.versions import read_version
from porting.version import VERSION

__all__ = ["Software", "probe_release", "probe_software"]

_OLDEST_PYTHON = (3, 8)
_OLDEST_TORCH = (2, 0)
_CAPTURING_TORCH = (2, 6)
_IMPORT_SECONDS = 120.0
_RELEASES = " or ".join(TESTED_RELEASES)
_MARK = "porting doctor:"

_LOOK_AT_TORCH = """
import json, torch
product = (torch.ones(2, 2) @ torch.ones(2, 2)).tolist()
facts = {"version": torch.__version__, "file": torch.__file__, "works": product == [[2.0, 2.0], [2.0, 2.0]],
         "threads": torch.get_num_threads()}
print("porting doctor:" + json.dumps(facts))
"""

_LOOK_AT_POPTORCH = """
import json, poptorch
facts = {"version": getattr(poptorch, "__version__", "unknown"), "file": poptorch.__file__,
         "ipus": bool(poptorch.ipuHardwareIsAvailable())}
facts["hardware"] = poptorch.ipuHardwareVersion() if facts["ipus"] else None
print("porting doctor:" + json.dumps(facts, default=str))
"""

_LOOK_AT_PACKAGE = "import json, {0}; print('porting doctor:' + json.dumps({{'version': {0}.__version__}}))"


@dataclass(frozen=True)
class Software:
    """The libraries' versions and abilities; empty where a library cannot be imported."""

    probes: Tuple[Probe, ...]
    torch: Mapping[str, Any] = field(default_factory=dict)
    poptorch: Mapping[str, Any] = field(default_factory=dict)

    @property
    def can_capture(self) -> bool:
        """Whether torch works and is new enough for capture and simulator."""
        return bool(self.torch.get("works")) and read_version(self.torch["version"]) >= _CAPTURING_TORCH

    @property
    def can_compile(self) -> bool:
        """Whether this torch's compiler was tested to compile whole steps; others replay them."""
        return self.can_capture and find_tested(self.torch["version"]).has("aot")

    @property
    def sees_ipus(self) -> bool:
        """Whether PopTorch can be imported and finds hardware."""
        return bool(self.poptorch.get("ipus"))


def probe_software() -> Software:
    """Probe Python and import the libraries, each in a process of its own."""
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(_probe_package, name) for name in ("numpy", "tqdm")]
        of_poptorch = pool.submit(_probe_poptorch)
        torch, torch_probe = _probe_torch()
        poptorch, poptorch_probe = of_poptorch.result()
        packages = [other.result() for other in others]
    probes = (
        _probe_python(),
        Probe("porting", "an installed version", VERSION),
        torch_probe,
        *packages,
        poptorch_probe,
        *([probe_release(poptorch["version"])] if poptorch else []),
    )
    return Software(probes, torch, poptorch)


def _probe_python() -> Probe:
    version = sys.version_info
    found = f"{version[0]}.{version[1]}.{version[2]} ({sys.executable or 'unknown'})"
    finding = None
    if version[:2] < _OLDEST_PYTHON:
        finding = Finding("X010", help="make an environment with Python 3.8 or later, and install this package there")
    return Probe("Python", f"3.8 or later; 3.8 for PopTorch {_RELEASES} on Ubuntu 20.04", found, finding)


def _probe_torch() -> Tuple[Dict[str, Any], Probe]:
    expected = f"2.6 or later for capture and simulator; 2.0.1 beside PopTorch {_RELEASES}"
    facts, fault = _import_apart("torch", _LOOK_AT_TORCH)
    if fault:
        finding = Finding(
            "X011",
            "torch is not installed" if not _is_installed("torch") else f"torch cannot be imported: {fault}",
            notes=f"the interpreter is {sys.executable}",
            help=(
                "install it into this environment: `pip install torch`",
                "see it fail alone: `python -c 'import torch'`",
            ),
        )
        return {}, Probe("torch", expected, "cannot be imported" if _is_installed("torch") else "not there", finding)
    found = f"{facts['version']}, {facts['threads']} threads"
    return facts, Probe("torch", expected, found, _judge_torch(facts))


def _judge_torch(facts: Mapping[str, Any]) -> Optional[Finding]:
    version = read_version(facts["version"])
    if not facts["works"]:
        return Finding("X011", "torch computes a wrong product of two matrices", help="install torch again")
    if version < _OLDEST_TORCH:
        return Finding("X011", f"torch {facts['version']} is older than 2.0", help="install torch 2.0.1 or later")
    if version < _CAPTURING_TORCH:
        return Finding(
            "C009",
            notes=f"it is torch {facts['version']}, and a capture needs 2.6",
            help="without IPUs, use an environment with torch 2.6 or later; with PopTorch this one is right",
            severity=Severity.NOTE if _is_installed("poptorch") else Severity.WARNING,
        )
    return None


def _probe_package(name: str) -> Probe:
    facts, fault = _import_apart(name, _LOOK_AT_PACKAGE.format(name))
    finding = None
    if fault:
        finding = Finding("X011", f"{name} cannot be imported: {fault}", help=f"`pip install --force-reinstall {name}`")
    return Probe(name, "can be imported", str(facts.get("version", "cannot be imported")), finding)


def _probe_poptorch() -> Tuple[Dict[str, Any], Probe]:
    name, expected = "PopTorch", f"{_RELEASES}, where there are IPUs"
    finding: Optional[Finding] = None
    if not _is_installed("poptorch"):
        finding = Finding(
            "D002",
            notes="poptorch is not installed",
            help="for IPUs, install the poptorch wheel of the Poplar SDK into this environment",
        )
        return {}, Probe(name, expected, "not there", finding)
    facts, fault = _import_apart("poptorch", _LOOK_AT_POPTORCH)
    if fault:
        broken = Finding(
            "X012",
            f"PopTorch is installed and cannot be used: {fault}",
            notes=f"the interpreter is {sys.executable}",
            help="source the SDK's `enable.sh`, and use the Python and torch that its poptorch was built for",
        )
        return {}, Probe(name, expected, "cannot be used", broken)
    hardware = f", hardware version {facts['hardware']}" if facts["ipus"] else ", no IPU found"
    if not facts["ipus"]:
        finding = Finding(
            "D002",
            notes="PopTorch works, and finds no IPU",
            help="see with `gc-info -l` that IPUs are attached, and that IPUOF_CONFIG_PATH is set",
            severity=Severity.WARNING,
        )
    return facts, Probe(name, expected, f"{facts['version']}{hardware}", finding)


def probe_release(version: str) -> Probe:
    """Tell whether ports are tested with this PopTorch, and how it differs from the newest tested one."""
    name, expected, release = "PopTorch release", f"{_RELEASES}, which are tested", name_release(version)
    if release not in TESTED_RELEASES:
        finding = Finding(
            "X023",
            f"PopTorch {version} is of a release that was not tested",
            help=f"use SDK {_RELEASES}, or compare what matters with plain PyTorch: `porting verify`",
        )
        return Probe(name, expected, "not tested", finding)
    difference = TESTED_RELEASES[release]
    if not difference:
        return Probe(name, expected, release)
    help = "a port refuses that (D021); in a program that calls PopTorch by itself, keep such a parameter as a buffer"
    return Probe(name, expected, release, Finding("X023", f"in PopTorch {release} {difference}", help=help))


def _is_installed(name: str) -> bool:
    """Tell whether a package is there, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _import_apart(name: str, program: str) -> Tuple[Dict[str, Any], str]:
    """Run a program that imports a package, in another process, and return its output, or the fault."""
    environment = {**make_environment(), "PYTHONIOENCODING": "utf-8"}
    answer = ask_program([sys.executable, "-c", program], timeout_seconds=_IMPORT_SECONDS, environment=environment)
    line = next((line for line in reversed(answer.text.splitlines()) if line.startswith(_MARK)), "")
    # an answer is usable even if the program crashed on its exit, as drivers do
    if line:
        return dict(json.loads(line[len(_MARK) :])), ""
    return {}, _name_fault(answer) or f"{name} said nothing of itself"


def _name_fault(answer: Answer) -> str:
    last = (answer.text.splitlines() or [""])[-1].strip()
    return last if last and answer.fault.startswith("ended with") else answer.fault
