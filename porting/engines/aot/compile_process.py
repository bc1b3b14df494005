"""Compiling in a process of its own, and why that failed: a compiler may hang, crash, or take all memory."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

from ...support.atomic_files import write_atomically
from ...support.bound_process import BoundProcess, find_free_memory
from ..compiled.compile_settings import CompileSettings, choose_cpp_compiler
from ..contract.failures import CompileFailure
from ..contract.limits import CompileLimits

__all__ = ["CompilerProcess", "compile_in_child", "compile_job"]

# How often the parent looks whether the child has ended, and how often it adds up the memory of the group. The second
# look reads a file of every process of the machine, so it is rarer.
_POLL_SECONDS = 0.02
_WATCH_SECONDS = 0.5
_ORDER_SECONDS = 0.01  # how often the child looks whether there is a program
# The rest stays for the parent, which goes on training or waits with its own tensors.
_SHARE_OF_FREE_MEMORY = 0.75

# Python's own number, 700, suits programs that keep less.
_OBJECTS_TO_COLLECTION = 50_000

# The module that compiles where no other is named; what there is to compile, in the work folder.
_COMPILER, _ORDER = "porting.engines.aot.compiler", "order.json"

# Inductor pastes paths into command lines without quotes
_PLAIN_PATH = re.compile(r"[\w./+@-]*")
_OUT_OF_MEMORY = re.compile(r"Killed signal terminated program|virtual memory exhausted|MemoryError|Cannot allocate")
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
# how errors about a torch that lacks something begin, whoever raises them
_MISSING_PART = "this torch has "
_TORCH = re.compile(rf"{_MISSING_PART}(.*)|error\[E013\]: (.*)")
_CXX_ERROR = re.compile(r"^.*?\b(?:fatal )?error: (.*)$", re.MULTILINE)


def compile_in_child(
    program_file: Path,
    folder: Path,
    *,
    settings: CompileSettings,
    limits: CompileLimits = CompileLimits(),  # noqa: B008 - frozen
    progress: Optional[Callable[[float], None]] = None,
    compiler: str = _COMPILER,
) -> None:
    """Compile `program_file` into `folder` in a process that is started for it, as `CompilerProcess.compile` does."""
    with CompilerProcess(folder.parent, compiler=compiler) as process:
        process.compile(program_file, folder, settings=settings, limits=limits, progress=progress)


class CompilerProcess:
    """A process that compiles one program; it loads its compiler, which takes seconds, while the program is made.

    A context, at whose end no file and no process is left.
    """

    def __init__(self, parent: Path, *, compiler: str = _COMPILER) -> None:
        """Start to load the module `compiler`, in a work folder in `parent`, which is made.

        It has `compile_here(program_file, folder, *, settings)`, and may have `probe()`, which returns why it can
        compile nothing. CompileFailure if this machine lacks what is needed,
        and OSError if the work folder cannot be made or the process not be started.
        """
        wanted = choose_cpp_compiler()
        if shutil.which(wanted[0]) is None:
            raise CompileFailure("no-compiler", f"there is no C++ compiler `{' '.join(wanted)}` on this machine")
        if not sys.executable:
            raise CompileFailure("error", "this program does not know which Python runs it")
        parent.mkdir(parents=True, exist_ok=True)
        # The work folder lies beside the result, on the same file system, so that handing the files over is a rename.
        place = str(parent.resolve())
        self._process = BoundProcess(
            f"{__name__}:compile_job",
            {"compiler": compiler},
            parent=place if _PLAIN_PATH.fullmatch(place) else None,
            environment=_make_environment(),
        )
        try:
            (self._process.folder / "out").mkdir()
            self._process.start()
        except BaseException:
            self.end()
            raise

    def compile(
        self,
        program_file: Path,
        folder: Path,
        *,
        settings: CompileSettings,
        limits: CompileLimits = CompileLimits(),  # noqa: B008 - frozen
        progress: Optional[Callable[[float], None]] = None,
    ) -> None:
        """Compile `program_file` and put what loading needs, and nothing else, into `folder`, which is made; once.

        `progress` is called now and then with the seconds so far. Raises CompileFailure; after it, and after an
        exception of `progress` or a KeyboardInterrupt, nothing runs any more.
        """
        order = {"program": str(program_file.resolve()), "settings": asdict(settings)}
        write_atomically(self._process.folder / _ORDER, json.dumps(order).encode())
        _wait_for_end(self._process, time.monotonic(), limits, progress)
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted((self._process.folder / "out").iterdir()):
            shutil.move(str(path), str(folder / path.name))

    def end(self) -> None:
        """Kill what runs and clear the work folder away."""
        self._process.end()

    def __enter__(self) -> CompilerProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()


def compile_job(job: Mapping[str, Any], work: Path) -> None:
    """Load a compiler, in this process, which is for that alone, and compile what is ordered as soon as it is."""
    # Inductor's caches are private, too
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "cache")
    os.environ["TRITON_CACHE_DIR"] = str(work / "cache" / "triton")
    # Thousands of modules are loaded and nothing becomes garbage: looking for it is a fifth of the time. What is loaded
    # is not looked at later either.
    gc.disable()
    compiler = import_module(job["compiler"])
    # said before a program is waited for, and traced, in vain
    reason = compiler.probe() if hasattr(compiler, "probe") else ""
    if reason:
        raise CompileFailure("torch", f"{_MISSING_PART}{reason}")
    gc.freeze()
    gc.enable()
    gc.set_threshold(_OBJECTS_TO_COLLECTION)
    while not (work / _ORDER).exists():
        time.sleep(_ORDER_SECONDS)
    order = json.loads((work / _ORDER).read_text(encoding="utf-8"))
    settings = CompileSettings(**order["settings"])
    compiler.compile_here(Path(order["program"]), work / "out", settings=settings)


# -- the process -------------------------------------------------------------------------------------------------------


def _wait_for_end(
    process: BoundProcess, started: float, limits: CompileLimits, progress: Optional[Callable[[float], None]]
) -> None:
    """Wait until it has compiled; raises CompileFailure if it has failed, or if a limit ends it."""
    status: Optional[int] = None
    try:
        _watch_limits(process, started, limits, progress)
    except CompileFailure as failure:
        raise CompileFailure(failure.kind, failure.reason, log=process.read_end_of_log()) from None
    finally:
        status = process.kill()
    error, log = process.read_error(), process.read_end_of_log()
    # With a result the child says itself what went wrong; without one only its exit status does.
    if error is None and status:
        raise _explain_death(status, log)
    if error is None:
        raise CompileFailure("crash", "the compiler ended without a result", log=log)
    if error:
        raise _explain_error(error, log)


def _watch_limits(
    process: BoundProcess, started: float, limits: CompileLimits, progress: Optional[Callable[[float], None]]
) -> None:
    memory_bytes = limits.memory_bytes or find_free_memory() * _SHARE_OF_FREE_MEMORY
    looked = started
    while not process.wait(_POLL_SECONDS):
        now = time.monotonic()
        if now - started > limits.seconds:
            raise CompileFailure("timeout", f"the compiler was not done after {limits.seconds:g} s")
        # The limit is for the whole group: most of the memory belongs to the C++ compiler, a grandchild.
        if now - looked >= _WATCH_SECONDS:
            looked = now
            if process.measure_memory() > memory_bytes:
                raise CompileFailure("memory", f"the compiler took more than {memory_bytes / 2**30:.1f} GiB of memory")
            if progress is not None:
                progress(now - started)


def _make_environment() -> Dict[str, str]:
    return {
        **os.environ,
        # The compiler is one of several that run at once, beside a training that needs the cores.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # what would change what is compiled where must not come from outside
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0",
        # messages of the C++ compiler are read by patterns in English
        "LC_ALL": "C",
    }


# -- the outcome -------------------------------------------------------------------------------------------------------


def _explain_error(error: str, log: str) -> CompileFailure:
    text = f"{error}\n{log}"
    # From the most specific cause to the least: a compiler that was killed for its memory also leaves an error that
    # would read as a refusal.
    if _OUT_OF_MEMORY.search(text):
        return CompileFailure("memory", "the compiler ran out of memory", log=log)
    if _NO_SPACE.search(text):
        return CompileFailure("space", "there is no room on the disk to compile in", log=log)
    lacking = _TORCH.search(error)
    if lacking is not None:
        return CompileFailure("torch", lacking[2] or f"{_MISSING_PART}{lacking[1]}", log=log)
    complaint = _CXX_ERROR.search(text)
    if complaint is not None:
        return CompileFailure("error", f"the C++ compiler refuses the program: {complaint[1][:300]}", log=log)
    return CompileFailure("error", f"Inductor refuses the program: {error.splitlines()[0][:300]}", log=log)


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
