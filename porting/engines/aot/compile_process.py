"""Compiling in a process of its own, which may hang, crash, or take all memory without harm to this one.

The process works in a folder of its own, Inductor's caches and the temporary files of the C++ compiler included, so
that nothing is shared with other processes and nothing stays behind. It leads a process group, which is killed as a
whole; it watches a pipe, and if this process dies, however that happens, it clears its folder away and kills the group.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

from ..compiled.compile_settings import CompileFailure, CompileLimits, CompileSettings

__all__ = ["LOG", "RESULT", "compile_in_child", "measure_group_memory"]

RESULT = "result.json"
"""What the compiling process says of its outcome, in its work folder."""

LOG = "log.txt"
"""Everything that it and the C++ compiler write, in its work folder."""

# How often the parent looks whether the child has ended, and how often it adds up the memory of the group. The second
# look reads a file of every process of the machine, so it is rarer.
_POLL_SECONDS = 0.05
_WATCH_SECONDS = 0.5
# A process in an uninterruptible wait of the kernel does not die at once, even by SIGKILL.
_KILL_SECONDS = 10.0
# The rest stays for the parent, which goes on training or waits with its own tensors.
_SHARE_OF_FREE_MEMORY = 0.75

# Inductor pastes paths into command lines without quotes
_PLAIN_PATH = re.compile(r"[\w./+@-]*")
_OUT_OF_MEMORY = re.compile(r"Killed signal terminated program|virtual memory exhausted|MemoryError|Cannot allocate")
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_CXX_ERROR = re.compile(r"^.*?\b(?:fatal )?error: (.*)$", re.MULTILINE)

# A string instead of `-m`: what the parent has added to its `sys.path` does not travel. The paths go to the end, so
# that they hide nothing that the child finds by itself.
_START = "import sys; sys.path.extend({paths!r}); from porting.engines.aot.worker import main; sys.exit(main({job!r}))"


def compile_in_child(
    program_file: Path,
    folder: Path,
    *,
    settings: CompileSettings,
    limits: CompileLimits = CompileLimits(),  # noqa: B008 - frozen
    progress: Optional[Callable[[float], None]] = None,
    compiler: str = "porting.engines.aot.compiler",
) -> None:
    """Compile `program_file` and put what loading needs, and nothing else, into `folder`, which is made.

    `progress` is called now and then with the seconds so far. `compiler` names the module whose
    `compile_here(program_file, folder, *, settings)` the other process calls. Raises CompileFailure; after it, and
    after an exception of `progress` or a KeyboardInterrupt, no file and no process is left. OSError if the work folder
    cannot be made.
    """
    wanted = os.environ.get("CXX", "").strip() or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(shlex.split(wanted)[0]) is None:
        raise CompileFailure("no-compiler", f"there is no C++ compiler `{wanted}` on this machine")
    if not sys.executable:
        raise CompileFailure("error", "this program does not know which Python runs it")
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The work folder lies beside the result, on the same file system, so that handing the files over is a rename.
    parent = str(folder.parent.resolve())
    work = Path(tempfile.mkdtemp(prefix=".compiling-", dir=parent if _PLAIN_PATH.fullmatch(parent) else None))
    try:
        job = {"program": str(program_file.resolve()), "compiler": compiler, "settings": asdict(settings)}
        (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
        _run_compiler(work, started=started, limits=limits, progress=progress)
        _check_outcome(work)
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted((work / "out").iterdir()):
            shutil.move(str(path), str(folder / path.name))
    finally:
        for _attempt in range(20):
            shutil.rmtree(work, ignore_errors=True)
            if not work.exists():
                break
            time.sleep(_POLL_SECONDS)  # a process that is dying may still have made a file


# -- the process -------------------------------------------------------------------------------------------------------


def _run_compiler(
    work: Path, *, started: float, limits: CompileLimits, progress: Optional[Callable[[float], None]]
) -> None:
    """Run the compiling process to its end; raises CompileFailure if a limit ends it."""
    for name in ("out", "tmp", "cache"):
        (work / name).mkdir()
    torch = importlib.util.find_spec("torch")
    roots = [str(Path(__file__).resolve().parents[3])]
    if torch is not None and torch.origin:
        roots.append(str(Path(torch.origin).parents[1]))
    program = _START.format(paths=roots, job=str(work))
    memory_bytes = limits.memory_bytes or _find_free_memory() * _SHARE_OF_FREE_MEMORY
    with open(work / LOG, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            # nobody writes to this pipe: its end tells the child that this process is gone
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=_make_environment(work),
            # the leader of a group of its own, so that one signal reaches the C++ compiler as well
            start_new_session=True,
        )
        try:
            _wait_for_end(process, started, limits.seconds, memory_bytes, progress)
        except CompileFailure as failure:
            raise CompileFailure(failure.kind, failure.reason, log=_read_end_of_log(work)) from None
        finally:
            _kill_group(process)
    # With a result the child says itself what went wrong; without one only its exit status does.
    if process.returncode != 0 and not (work / RESULT).exists():
        raise _explain_death(process.returncode, _read_end_of_log(work))


def _wait_for_end(
    process: subprocess.Popen[bytes],
    started: float,
    seconds: float,
    memory_bytes: float,
    progress: Optional[Callable[[float], None]],
) -> None:
    looked = started
    while True:
        try:
            process.wait(timeout=_POLL_SECONDS)
            return
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if now - started > seconds:
            raise CompileFailure("timeout", f"the compiler was not done after {seconds:g} s")
        # The limit is for the whole group: most of the memory belongs to the C++ compiler, a grandchild.
        if now - looked >= _WATCH_SECONDS:
            looked = now
            if measure_group_memory(process.pid) > memory_bytes:
                raise CompileFailure("memory", f"the compiler took more than {memory_bytes / 2**30:.1f} GiB of memory")
            if progress is not None:
                progress(now - started)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, the C++ compiler included, and wait until the leader is gone."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):
        pass  # all of them have ended
    # Closed only now: an earlier end of the pipe would make the child clear its folder away.
    if process.stdin is not None:
        process.stdin.close()
    process.wait(timeout=_KILL_SECONDS)


def _make_environment(work: Path) -> Dict[str, str]:
    # what would change what is compiled where, or fill the log, must not come from outside
    ours = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "PYTHONSTARTUP")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {
        **kept,
        # The compiler is one of several that run at once, beside a training that needs the cores.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(work / "cache"),
        "TRITON_CACHE_DIR": str(work / "cache" / "triton"),
        # With its temporary files in the work folder even a killed C++ compiler leaves nothing behind.
        "TMPDIR": str(work / "tmp"),
        "PYTHONWARNINGS": "ignore",
        # messages of the C++ compiler are read by patterns in English
        "LC_ALL": "C",
    }


# -- memory ------------------------------------------------------------------------------------------------------------


def measure_group_memory(group: int) -> int:
    """Return the bytes that the processes of a group have in memory; 0 where the system does not say.

    >>> measure_group_memory(-1)
    0
    """
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # the name of a program, in brackets, may contain anything
            # The fields are those of proc(5), counted after the name: 2 is the group, 21 the pages in memory.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
    return total


def _find_free_memory() -> float:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        text = ""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else float("inf")


# -- the outcome -------------------------------------------------------------------------------------------------------


def _check_outcome(work: Path) -> None:
    """Raise the failure that the process reports, if it does."""
    try:
        result: Mapping[str, Any] = json.loads((work / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise CompileFailure("crash", "the compiler ended without a result", log=_read_end_of_log(work)) from None
    error = str(result.get("error", ""))
    if not error:
        return
    log = _read_end_of_log(work)
    text = f"{error}\n{log}"
    # From the most specific cause to the least: a compiler that was killed for its memory also leaves an error that
    # would read as a refusal.
    if _OUT_OF_MEMORY.search(text):
        raise CompileFailure("memory", "the compiler ran out of memory", log=log)
    if _NO_SPACE.search(text):
        raise CompileFailure("space", "there is no room on the disk to compile in", log=log)
    complaint = _CXX_ERROR.search(text)
    if complaint is not None:
        raise CompileFailure("error", f"the C++ compiler refuses the program: {complaint[1][:300]}", log=log)
    raise CompileFailure("error", f"Inductor refuses the program: {error.splitlines()[0][:300]}", log=log)


def _explain_death(code: int, log: str) -> CompileFailure:
    if _OUT_OF_MEMORY.search(log):
        return CompileFailure("memory", "the compiler ran out of memory", log=log)
    if code >= 0:
        return CompileFailure("crash", f"the compiling process ended with the code {code}", log=log)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return CompileFailure("crash", f"the compiling process was ended by {name}{hint}", log=log)


def _read_end_of_log(work: Path) -> str:
    try:
        return (work / LOG).read_bytes()[-20000:].decode(errors="replace").replace(f"{work}/", "")
    except OSError:
        return ""
