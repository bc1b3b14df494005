"""Examine this machine as a whole: run all probes, list what works here, and give the verdict in one line.

`porting doctor` prints it.
"""

from __future__ import annotations

import platform
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Tuple

from porting.diagnostics import Finding, Severity, align_columns, render, say_number
from porting.doctor.distribution import probe_launcher
from porting.doctor.ipus import Hardware, probe_hardware
from porting.doctor.machine import probe_machine
from porting.doctor.probes import Probe
from porting.doctor.redaction import Redaction
from porting.doctor.software import Software, probe_software
from porting.support.torch_versions import find_tested, is_newer_than_tested
from porting.support.versions import read_version
from porting.version import VERSION

__all__ = ["Examination", "examine_machine"]

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Examination:
    """The findings on this machine; as a string it is the text that `porting doctor` prints.

    `abilities` list what works here: name, whether it works, and the reason.
    """

    probes: Tuple[Probe, ...]
    abilities: Tuple[Tuple[str, bool, str], ...]
    system: str

    @property
    def findings(self) -> List[Finding]:
        """The differences from what is expected, the worst first."""
        found = [probe.finding for probe in self.probes if probe.finding is not None]
        return sorted(found, key=lambda finding: list(Severity).index(Severity(finding.severity)))

    @property
    def is_well(self) -> bool:
        """Whether nothing has to be put right: notes are facts, errors and warnings are not."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The verdict in one line: whether this machine is fit for ports, and the first remedy if not."""
        counts = Counter(finding.severity for finding in self.findings)
        numbers = ", ".join(say_number(counts[kind], kind.value) for kind in Severity if counts[kind]) or "no finding"
        has_ipus = self.abilities[-1][1]
        works = "ready for IPUs" if has_ipus else "ready for work without IPUs"
        if counts[Severity.ERROR]:
            works = "not ready"
        elif counts[Severity.WARNING]:
            works += ", with something to put right"
        begin = "" if self.is_well else f"; begin with {self.findings[0].code}: {self.findings[0].message}"
        return f"{works}: {len(self.probes)} things looked at, {numbers}{begin}"

    def to_dict(self) -> Dict[str, Any]:
        """Make a dictionary of plain values for others to read, without names, addresses and secrets."""
        document = {
            "version": _FORMAT_VERSION,
            "porting": VERSION,
            "system": self.system,
            "verdict": self.verdict,
            "is_well": self.is_well,
            "probes": [probe.to_dict() for probe in self.probes],
            "works_here": [{"name": name, "works": works, "why": why} for name, works, why in self.abilities],
        }
        redacted: Dict[str, Any] = Redaction().redact(document)
        return redacted

    def __str__(self) -> str:
        return "\n".join(self._write_lines())

    def _write_lines(self) -> Iterator[str]:
        yield from align_columns([("", "looked at", "found", "expected"), *map(_write_row, self.probes)])
        for finding in self.findings:
            yield ""
            yield render(finding)
        yield ""
        yield "what works here:"
        yield from align_columns([("  yes" if works else "  no", name, why) for name, works, why in self.abilities])
        yield ""
        yield self.verdict


def examine_machine() -> Examination:
    """Run all probes; they change nothing, and nothing that is missing or broken stops them."""
    # importing torch and compiling a program take seconds, in processes of their own
    with ThreadPoolExecutor() as pool:
        machine = pool.submit(probe_machine)
        software = probe_software()
        hardware = probe_hardware(poptorch_version=str(software.poptorch.get("version", "")))
        probes = (*software.probes, *hardware.probes, probe_launcher(), *machine.result())
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return Examination(probes, tuple(_iter_abilities(software, hardware, probes)), system)


def _write_row(probe: Probe) -> Tuple[str, ...]:
    return probe.state, probe.name, probe.found, probe.expected


def _iter_abilities(
    software: Software, hardware: Hardware, probes: Tuple[Probe, ...]
) -> Iterator[Tuple[str, bool, str]]:
    """Yield the abilities; that of IPUs is the last."""
    faults = {probe.name for probe in probes if probe.finding is not None}
    torch = _describe_torch(software.torch["version"]) if software.torch else "torch cannot be imported"
    yield "porting check of sources, explain, cache", True, "needs no torch"
    captures = software.can_capture
    yield "capture, the simulator, recipes, porting check of a model", captures, torch
    compiles = software.can_compile and "C++ compiler" not in faults
    if captures and not software.can_compile:
        why = f"{torch}: ports train by replay"
    else:
        why = _find_probe(probes, "C++ compiler").found if captures else torch
    yield "compiled training on the CPU", compiles, why
    yield "several instances", captures and "launcher" not in faults, _find_probe(probes, "launcher").found
    if software.sees_ipus:
        why = f"PopTorch {software.poptorch['version']}, {hardware.num_devices or 'some'} IPUs"
    else:
        why = _find_probe(probes, "PopTorch").found
        why = "no PopTorch" if why == "not there" else f"PopTorch: {why}"
    yield "training on IPUs", software.sees_ipus, why


def _describe_torch(version: str) -> str:
    """Name the tested version that tells what works with a torch."""
    tested = find_tested(version).version
    if read_version(version) == read_version(tested):
        return f"torch {version}, tested"
    newer = ", newer than all that were tested" if is_newer_than_tested(version) else ""
    return f"torch {version}{newer}; known from {tested}"


def _find_probe(probes: Tuple[Probe, ...], name: str) -> Probe:
    return next(probe for probe in probes if probe.name == name)
