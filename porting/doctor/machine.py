"""Probe what a program needs of its machine: cache folder, shared memory, files, cores, clock, C++ compiler.

`examine_machine` runs them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from porting.diagnostics import Finding, OptionError
from porting.doctor.probes import Probe, ask_program
from porting.executables.machine import find_compiler
from porting.executables.settings import find_cache_folder, format_bytes, read_max_cache_bytes
from porting.executables.trust import UntrustedError, require_trusted_folder
from porting.support.process import usable_cores

__all__ = ["probe_machine"]

_WANTED_CACHE_BYTES = 2 << 30
_WANTED_SHARED_BYTES = 1 << 30
_WANTED_FILES = 4096
_COMPILER_SECONDS = 20.0
# this version of the package was written then: no clock is right that is earlier
_EARLIEST_SECONDS = time.mktime((2026, 1, 1, 0, 0, 0, 0, 0, 0))
_MOST_SKEW_SECONDS = 120.0
_GROUP_FOLDER = Path("/sys/fs/cgroup")
_SHARED_FOLDER = Path("/dev/shm")


def probe_machine() -> List[Probe]:
    """Probe everything that ports need of the machine around a program."""
    return [
        _probe_cache(),
        _probe_shared_memory(),
        _probe_open_files(),
        _probe_cores(),
        _probe_memory(),
        _probe_clock(),
        _probe_compiler(),
    ]


def _probe_cache() -> Probe:
    """Write a file into the cache folder, or into the nearest folder above that exists; look at the room there."""
    name, expected = "cache folder", f"writable, {format_bytes(_WANTED_CACHE_BYTES)} free"
    folder = find_cache_folder()
    parent = next((path for path in (folder, *folder.absolute().parents) if path.exists()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=parent) as file:
            file.write(b"porting")
        free = shutil.disk_usage(parent).free
    except OSError as error:
        unwritable = Finding(
            "E004",
            f"the cache folder {folder} cannot be written: {error.strerror or error}",
            help="let PORTING_CACHE_DIR name a folder that you can write to; on Slurm, one that outlives the job",
        )
        return Probe(name, expected, f"{folder}: not writable", unwritable)
    finding = _find_cache_fault(folder)
    if finding is None and free < _WANTED_CACHE_BYTES:
        finding = Finding(
            "X016",
            f"the disk of {folder} has {format_bytes(free)} left",
            help=("clear it: `porting cache clear`", "or let PORTING_CACHE_DIR name a folder on another disk"),
        )
    return Probe(name, expected, f"{folder}: {format_bytes(free)} free", finding)


def _find_cache_fault(folder: Path) -> Optional[Finding]:
    try:
        read_max_cache_bytes()
        require_trusted_folder(folder)
    except OptionError as error:  # a variable with a value that it cannot have
        return error.finding
    except UntrustedError as error:
        return Finding("E004", f"the cache folder {folder} is not used: {error}", help=error.remedies)
    return None


def _probe_shared_memory() -> Probe:
    name, expected = (
        "shared memory",
        f"{format_bytes(_WANTED_SHARED_BYTES)} free in {_SHARED_FOLDER}, for loaders' workers",
    )
    if not _SHARED_FOLDER.is_dir():
        return Probe(name, expected, "this system has no /dev/shm")
    usage = shutil.disk_usage(_SHARED_FOLDER)
    finding = None
    if usage.free < _WANTED_SHARED_BYTES:
        finding = Finding(
            "X017",
            f"{format_bytes(usage.free)} of shared memory are free",
            help="in Docker, start the container with `--shm-size=8g` or `--ipc=host`; or use fewer workers",
        )
    return Probe(name, expected, f"{format_bytes(usage.free)} of {format_bytes(usage.total)} free", finding)


def _probe_open_files() -> Probe:
    name, expected = "open files", f"{_WANTED_FILES:,} for one process"
    try:
        import resource
    except ImportError:  # Windows
        return Probe(name, expected, "this system has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    finding = None
    if soft != resource.RLIM_INFINITY and soft < _WANTED_FILES:
        finding = Finding(
            "X018",
            f"a process may open {soft:,} files",
            notes=f"the hard limit is {_say_limit(hard)}",
            help=f"raise it in the shell that starts the training: `ulimit -n {min(65536, max(hard, soft))}`",
        )
    return Probe(name, expected, _say_limit(soft), finding)


def _say_limit(limit: int) -> str:
    return "unlimited" if limit < 0 or limit >= 1 << 62 else f"{limit:,}"


def _probe_cores() -> Probe:
    """Compare the threads that torch will start with the cores that this process may use."""
    name, expected = "cores and threads", "no more threads than cores"
    cores, quota = usable_cores(), _read_quota()
    usable = cores if quota is None else min(float(cores), quota)
    found = f"{cores} cores" + (f", of which the container may use {quota:g}" if quota is not None else "")
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    threads = int(text) if text.isdigit() else cores
    found += f"; OMP_NUM_THREADS={text}" if text else "; OMP_NUM_THREADS not set"
    finding = None
    if threads > max(1.0, usable):
        finding = Finding(
            "X022",
            f"torch would start {threads} threads on {usable:g} cores",
            help=f"set the number of threads: `export OMP_NUM_THREADS={max(1, int(usable))}`",
        )
    return Probe(name, expected, found, finding)


def _read_quota() -> Optional[float]:
    """Return how many cores the container may use, as its group of processes says, version 2 or 1; None if all."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((_GROUP_FOLDER / file).read_text(encoding="ascii") for file in files).split()
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):  # `max` is no number
            continue
        return quota / period if quota > 0 < period else None
    return None


def _probe_memory() -> Probe:
    """Report the memory, which is never a fault: models differ."""
    total = _read_memory()
    return Probe("memory", "enough for the model; `porting plan` tells", format_bytes(total) if total else "not known")


def _read_memory() -> int:
    """Return the bytes of memory that processes here may have: the machine's, or the container's if that is less."""
    limits = []
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int((_GROUP_FOLDER / path).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # another system
        pass
    return min(limits, default=0)


def _probe_clock() -> Probe:
    """Look for clocks that are not right: before this package was written, or apart from that of the file system."""
    name, expected = "clock", "right, and that of the file systems"
    now = time.time()
    found = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now))
    fault = f"the clock says {found}, which is over" if now < _EARLIEST_SECONDS else ""
    for folder, skew in _iter_skews():
        if abs(skew) > _MOST_SKEW_SECONDS:
            fault = (
                f"the file system of {folder} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this clock"
            )
    finding = None
    if fault:
        help = "let this machine and its file servers keep time: `timedatectl`, `chronyc tracking`"
        note = "ages of executables and checkpoints are compared by time"
        finding = Finding("X020", fault, notes=note, help=help)
    return Probe(name, expected, found, finding)


def _iter_skews() -> Iterator[Tuple[Path, float]]:
    """Yield the seconds that the clocks of file systems are ahead, by the time of a file that is made now."""
    for folder in {path for path in (find_cache_folder(), Path.cwd()) if os.access(path, os.W_OK)}:
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".porting-") as file:
                yield folder, os.stat(file.name).st_mtime - time.time()
        except OSError:
            continue


def _probe_compiler() -> Probe:
    """Compile a program of one line, as the compiled engines would."""
    name, expected = "C++ compiler", "one that works, for compiled steps"
    wanted = os.environ.get("CXX", "").strip()
    path = find_compiler()
    if wanted and shutil.which(shlex.split(wanted)[0]) is None:
        help = "set CXX to a compiler that is there, or unset it"
        return Probe(name, expected, "none", Finding("X021", f"CXX is {wanted!r}, which is not on PATH", help=help))
    if not path:
        help = "install one, such as g++: `apt install g++`; until then steps are replayed, which is slower"
        return Probe(name, expected, "none", Finding("X021", help=help))
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "one.cpp"), Path(folder, "one.so")
        source.write_text('#include <cstdint>\n#include <vector>\nextern "C" int32_t one() { return 1; }\n')
        words = [path, "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(program)]
        answer = ask_program(words, timeout_seconds=_COMPILER_SECONDS)
        if answer.fault or not program.exists():
            finding = Finding(
                "X021",
                f"the C++ compiler {path} {answer.fault or 'wrote nothing'}",
                notes=answer.text.splitlines()[:3],
                help="install its standard library and linker (`apt install g++`), or set CXX to another compiler",
            )
            return Probe(name, expected, f"{path} does not work", finding)
    version = (ask_program([path, "--version"], timeout_seconds=_COMPILER_SECONDS).text.splitlines() or [path])[0]
    return Probe(name, expected, version, None)
