"""Probe the hardware: the Poplar SDK, the tools that look at IPUs, their driver, and the partition's variables.

`examine_machine` runs them.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from porting.diagnostics import Finding, Severity, join_names
from porting.doctor.probes import Answer, Probe, ask_program

__all__ = ["Hardware", "probe_hardware"]

_TOOL_SECONDS = 20.0
_DRIVER_VERSION = re.compile(r"driver[ _-]*version\W*([\d.]+)", re.IGNORECASE)
_SDK_VERSION = re.compile(r"(\d+\.\d+)(?:\.\d+)?")
_ENABLE = "source the SDK's scripts: `source poplar_sdk/enable`, or both `enable.sh` of poplar and of popart"


@dataclass(frozen=True)
class Hardware:
    """The IPUs of this machine: probes, the number of devices, and the version of the SDK."""

    probes: Tuple[Probe, ...]
    num_devices: int = 0
    sdk_version: str = ""


def probe_hardware(*, poptorch_version: str = "") -> Hardware:
    """Look for the SDK, and run the tools `gc-info` and `gc-monitor` where they are installed."""
    sdk, sdk_version = _probe_sdk(poptorch_version)
    devices, driver, num_devices = _probe_devices()
    partition = _probe_partition()
    return Hardware((sdk, driver, devices, _probe_monitor(), partition), num_devices, sdk_version)


def _probe_sdk(poptorch_version: str) -> Tuple[Probe, str]:
    expected = "enabled, of PopTorch's version, where there are IPUs"
    enabled = os.environ.get("POPLAR_SDK_ENABLED", "")
    popc = shutil.which("popc")
    if not enabled and popc is None:
        finding = None
        if poptorch_version:
            finding = Finding("X013", "PopTorch is installed, and no Poplar SDK is enabled", help=_ENABLE)
        return Probe("Poplar SDK", expected, "not enabled", finding), ""
    if enabled and not Path(enabled).exists():
        finding = Finding("X013", f"POPLAR_SDK_ENABLED names a folder that is not there: {enabled}", help=_ENABLE)
        return Probe("Poplar SDK", expected, "the folder is missing", finding), ""
    if popc is None:
        finding = Finding("X013", "POPLAR_SDK_ENABLED is set, and the SDK's `popc` is not on PATH", help=_ENABLE)
        return Probe("Poplar SDK", expected, "half enabled", finding), ""
    answer = ask_program([popc, "--version"], timeout_seconds=_TOOL_SECONDS)
    match = _SDK_VERSION.search(answer.text)
    if answer.fault or match is None:
        finding = Finding("X013", f"the SDK's `popc --version` {answer.fault or 'names no version'}", help=_ENABLE)
        return Probe("Poplar SDK", expected, "popc does not work", finding), ""
    return Probe("Poplar SDK", expected, match[0], _compare_versions(match[1], poptorch_version)), match[0]


def _compare_versions(sdk: str, poptorch: str) -> Optional[Finding]:
    found = _SDK_VERSION.match(poptorch)
    if found is None or found[1] == sdk:
        return None
    return Finding(
        "X013",
        f"the Poplar SDK is {sdk}, and PopTorch is of SDK {found[1]}",
        help=(f"install the poptorch wheel of SDK {sdk}", f"or enable SDK {found[1]}"),
    )


def _probe_devices() -> Tuple[Probe, Probe, int]:
    """Ask `gc-info` for the devices and for the driver's version."""
    expected, driver_expected = "at least one, where there are IPUs", "loaded, where there are IPUs in this machine"
    tool = shutil.which("gc-info")
    loaded = Path("/sys/module/ipu_driver")
    driver = "loaded" if loaded.exists() else "not loaded"
    if tool is None:
        return Probe("IPUs", expected, "no gc-info on PATH"), Probe("IPU driver", driver_expected, driver), 0
    answer = ask_program([tool, "-l"], timeout_seconds=_TOOL_SECONDS)
    # single devices, each a line with its number; groups of several are listed in the same form, `Id: [4], ... [0, 1]`
    devices = re.findall(r"Id:\s*\[(\d+)\][^\n]*PCI Domain:\s*\[[^,\]]*\]", answer.text)
    version = _ask_driver(tool) if devices else ""
    driver_probe = Probe("IPU driver", driver_expected, f"version {version}" if version else driver)
    if answer.fault:
        return Probe("IPUs", expected, "gc-info failed", _make_unreachable("gc-info", answer)), driver_probe, 0
    if not devices:
        finding = Finding(
            "X014",
            "`gc-info -l` lists no IPU",
            notes=answer.text.splitlines()[:3],
            help=(
                "in a container, pass the devices through: `gc-docker -- run ...`",
                "with a V-IPU, make a partition and set IPUOF_VIPU_API_HOST and IPUOF_VIPU_API_PARTITION_ID",
            ),
        )
        return Probe("IPUs", expected, "none", finding), driver_probe, 0
    return Probe("IPUs", expected, f"{len(set(devices))} listed by gc-info"), driver_probe, len(set(devices))


def _ask_driver(tool: str) -> str:
    answer = ask_program([tool, "--device-id", "0", "--device-info"], timeout_seconds=_TOOL_SECONDS)
    match = _DRIVER_VERSION.search(answer.text)
    return match[1] if match else ""


def _probe_monitor() -> Probe:
    """Ask `gc-monitor` who uses the devices."""
    name, expected = "use of the IPUs", "no process of others on them"
    tool = shutil.which("gc-monitor")
    if tool is None:
        return Probe(name, expected, "no gc-monitor on PATH")
    answer = ask_program([tool, "--no-card-info"], timeout_seconds=_TOOL_SECONDS)
    if answer.fault:
        return Probe(name, expected, "gc-monitor failed", _make_unreachable("gc-monitor", answer))
    users = _list_users(answer.text)
    finding = None
    if users:
        finding = Finding(
            "X014",
            f"the IPUs are used by {join_names(users, most=3)}",
            help=(
                "wait for these processes, or end those that are yours",
                "or take other IPUs: `poprun --vipu-partition`",
            ),
            severity=Severity.WARNING,
        )
    return Probe(name, expected, f"{len(users)} attached" if users else "nobody is attached", finding)


def _list_users(text: str) -> List[str]:
    """List the processes of the table of gc-monitor whose first column is a PID."""
    rows = (re.split(r"\s*\|\s*", line.strip().strip("|").strip()) for line in text.splitlines() if "|" in line)
    users = {row[0]: row[1] for row in rows if len(row) >= 2 and row[0].isdigit()}
    return [f"{command} ({pid})" for pid, command in users.items()]


def _make_unreachable(tool: str, answer: Answer) -> Finding:
    return Finding(
        "X014",
        f"`{tool}` {answer.fault}",
        notes=answer.text.splitlines()[-3:],
        help=(
            "see whether the driver is loaded (`lsmod | grep ipu`), and the V-IPU controller can be reached",
            f"run it by hand: `{tool}`",
        ),
    )


def _probe_partition() -> Probe:
    """Look at the variables by which programs find the IPUs of a partition."""
    name, expected = "partition", "IPUOF_* variables that belong together, or none"
    variables = {key: value for key, value in sorted(os.environ.items()) if key.startswith("IPUOF_")}
    if not variables:
        return Probe(name, expected, "no IPUOF_* variable is set")
    fault = _find_partition_fault(variables)
    finding = None
    if fault is not None:
        finding = Finding("X015", fault[0], notes=f"set are {join_names(variables)}", help=fault[1])
    return Probe(name, expected, join_names(variables, quote=""), finding)


def _find_partition_fault(variables: Dict[str, str]) -> Optional[Tuple[str, str]]:
    config = variables.get("IPUOF_CONFIG_PATH", "")
    if config and not Path(config).is_file():
        return (
            f"IPUOF_CONFIG_PATH names a file that is not there: {config}",
            "make the partition, and set the variable to the file that `vipu create partition` writes",
        )
    if config:
        return None
    host, partition = (variables.get(f"IPUOF_VIPU_API_{word}", "") for word in ("HOST", "PARTITION_ID"))
    if host and not partition:
        return (
            "IPUOF_VIPU_API_HOST is set, and IPUOF_VIPU_API_PARTITION_ID is not",
            "set it to the partition's name, which `vipu list partitions` tells",
        )
    if partition and not host:
        return (
            "IPUOF_VIPU_API_PARTITION_ID is set, and IPUOF_VIPU_API_HOST is not",
            "set it to the address of the V-IPU controller",
        )
    port = variables.get("IPUOF_VIPU_API_PORT", "")
    if port and not port.isdigit():
        return f"IPUOF_VIPU_API_PORT is {port!r}, which is no number", "set it to the controller's port, or unset it"
    return None
