"""Finds out what compiled programs depend on besides the model: versions, processor, compiler; without torch."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Union

from ..version import VERSION

__all__ = [
    "collect_compiler_settings",
    "collect_versions",
    "describe_processor",
    "find_compiler",
    "list_machine_differences",
]

_PROCESSOR_FACTS = Path("/proc/cpuinfo")
_MODEL_KEYS = ("model name", "cpu model", "uarch")
_ARM_KEYS = ("CPU implementer", "CPU part", "CPU variant")
_FLAG_KEYS = ("flags", "Features", "isa")

# of the flags of x86 those that name instructions a compiler may use; the rest is about the kernel and virtual machines
_INSTRUCTIONS = re.compile(
    r"(s?sse|avx|amx|fma|f16c|bmi|abm|popcnt|movbe|adx|sha_ni|v?aes|gfni|v?pclmul|rdrnd|rdseed|xsave|lahf_lm|cx16)\w*"
)

# Variables of Inductor that change neither what is compiled nor how.
_HARMLESS = re.compile(r"CACHE|DEBUG|TRACE|LOG|PROGRESS|DUMP")


@functools.lru_cache(maxsize=1)
def collect_versions() -> Mapping[str, str]:
    """Return the versions of torch, porting and Python, and the operating system; torch is not loaded for that.

    >>> sorted(collect_versions())
    ['porting', 'python', 'system', 'torch']
    """
    # between two versions, the part of this package that makes programs may change as well
    digest = hashlib.sha256()
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in ("engines", "capture", "simulator/_operators"):
        for file in sorted(_iter_sources(os.path.join(package, folder))):
            digest.update(f"{os.path.relpath(file, package)}\n".encode() + _read_bytes(file))
    return {
        "torch": _find_torch_version(),
        "porting": f"{VERSION} ({digest.hexdigest()[:8]})",
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "system": f"{platform.system()} {platform.machine()}",
    }


def _iter_sources(folder: str) -> Iterator[str]:
    """List the source files in a folder and those below; `pathlib` takes as long for that as reading them."""
    for where, _folders, names in os.walk(folder):
        yield from (os.path.join(where, name) for name in names if name.endswith((".cpp", ".h", ".py")))


def _find_torch_version() -> str:
    loaded = sys.modules.get("torch")
    if loaded is not None and hasattr(loaded, "__version__"):
        return str(loaded.__version__)
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        return "none"
    text = _read_text(Path(found.origin).with_name("version.py"))
    match = re.search(r"^__version__ = ['\"](.+?)['\"]", text, re.MULTILINE)
    return match[1] if match else "unknown"


@functools.lru_cache(maxsize=1)
def describe_processor() -> Mapping[str, Any]:
    """Return the processor's name and the sets of instructions that it has.

    >>> sorted(describe_processor())
    ['instructions', 'name']
    """
    # what Linux says of the first one; machines with many take long to list them all
    facts: Dict[str, str] = {}
    try:
        with open(_PROCESSOR_FACTS, encoding="utf-8", errors="replace") as lines:
            for line in itertools.takewhile(str.strip, lines):
                key, _, value = line.partition(":")
                facts[key.strip()] = value.strip()
    except OSError:
        pass  # another system
    name = next((facts[key] for key in _MODEL_KEYS if key in facts), "")
    name = name or " ".join(facts[key] for key in _ARM_KEYS if key in facts) or platform.processor() or "unknown"
    flags = next((facts[key] for key in _FLAG_KEYS if key in facts), "").split()
    if platform.machine().lower() in ("x86_64", "amd64", "i386", "i686"):
        flags = [flag for flag in flags if _INSTRUCTIONS.fullmatch(flag)]
    return {"name": name, "instructions": sorted(flags)}


def find_compiler() -> str:
    """Return the path of the C++ compiler that programs are compiled with, links followed; empty without one."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++", "c++"):
        path = shutil.which(name.split()[0]) if name.strip() else None
        if path:
            return os.path.realpath(path)
    return ""


def collect_compiler_settings() -> Dict[str, str]:
    """Return the environment variables that say how programs are compiled."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name in ("CXX", "CXXFLAGS", "ATEN_CPU_CAPABILITY", "PORTING_LEAVE_OUT")
        or (name.startswith("TORCHINDUCTOR_") and not _HARMLESS.search(name))
    }


def list_machine_differences(their_versions: Mapping[str, Any], their_processor: Mapping[str, Any]) -> List[str]:
    """List why programs of a machine with these versions and this processor do not belong on this one.

    >>> list_machine_differences(collect_versions(), describe_processor())
    []
    """
    found = [
        f"it is for {name} {their_versions.get(name)}, this is {own}"
        for name, own in collect_versions().items()
        if their_versions.get(name) != own
    ]
    if their_processor.get("name") != describe_processor()["name"]:
        found.append(f"it is for the processor {their_processor.get('name')}, this is {describe_processor()['name']}")
    theirs = their_processor.get("instructions")
    lacking = set(map(str, theirs if isinstance(theirs, list) else ())) - set(describe_processor()["instructions"])
    if lacking:
        found.append(f"this processor lacks {', '.join(sorted(lacking))}")
    return found


def _read_text(file: Path) -> str:
    return _read_bytes(file).decode("utf-8", errors="replace")


def _read_bytes(file: Union[str, Path]) -> bytes:
    try:
        with open(file, "rb") as source:
            return source.read()
    except OSError:
        return b""
