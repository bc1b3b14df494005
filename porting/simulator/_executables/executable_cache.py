"""Keep the folder of compiled executables: one file for each graph, and a lock so that one process compiles at a time.

Compilations use it. As with PopTorch, a file there is named after the fingerprint of its graph. Compiled programs are
kept elsewhere (`porting.executables`), so a file holds nothing but its format and the fingerprint.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional

from torch import nn

from ...capture import StepGraph
from ...executables.trust import create_folder
from ...support.atomic_files import write_atomically
from .._device.device_target import uses_ipu_model
from .._graph.graph_files import hash_record, make_graph_record
from .._logging import cpp_log, logger
from ..options import Options

__all__ = ["find_cache_folder", "keep_executable", "lock_compilation"]

CACHE_FORMAT = b"porting simulator executable 2\n"


def find_cache_folder(options: Options) -> Optional[Path]:
    """Return the folder of executables; None if caching is off."""
    settings = options._Popart.options
    path = settings.get("cachePath")
    return Path(path) if path and settings.get("enableEngineCaching") else None


def keep_executable(graph: StepGraph, options: Options, *, settings: Mapping[str, Any]) -> None:
    """Write the file of `graph` and `settings` unless it is there; AssertionError for a folder that is read-only."""
    folder = find_cache_folder(options)
    # PopTorch warns of caching with the IPU model, and does without it
    if folder is None or uses_ipu_model(options):
        return
    _require_writable(folder)
    name = hash_record(make_graph_record(graph), settings=settings)[:32]
    path, content = folder / f"{name}.popef", CACHE_FORMAT + name.encode() + b"\n"
    # a file of another version, or one that was cut off, is written again
    if path.exists() and path.read_bytes() == content:
        cpp_log("debug", f"The executable is in the cache already: {path}")
        return
    write_atomically(path, content)
    cpp_log("debug", f"Saved the executable to the cache: {path}")


@contextmanager
def lock_compilation(model: nn.Module, options: Options) -> Iterator[bool]:
    """Let the processes of a distributed run compile `model` one by one; yields whether this one is the first.

    The lock, `distributedCacheLock` for programs, is a file in the cache folder, named after the model; each process
    adds a character, and the last one removes it. A single process needs none; without a cache there is a warning.
    """
    num_processes = options.Distributed.numProcesses
    folder = find_cache_folder(options)
    if num_processes > 1 and folder is None:
        logger.warning("Use poptorch.Options.enableExecutableCaching() to avoid compiling the model once per process")
    if num_processes <= 1 or folder is None:
        yield False
        return
    _require_writable(folder)
    path = folder / f"{hashlib.md5(repr(model).encode()).hexdigest()}.lock"
    # The position in the file counts the processes that have been here: it survives the one that made the file.
    with _open_locked(path) as file:
        file.write("0")
        file.flush()
        position = file.tell()
        process = options.Distributed.processId
        logger.debug("Executable cache file locked by process %s (pos %d/%d)", process, position, num_processes)
        try:
            yield position == 1
        finally:
            if position >= num_processes:
                path.unlink()
            logger.debug("Process %s released the cache lock", process)


@contextmanager
def _open_locked(path: Path) -> Iterator[Any]:
    """Open the file for appending, alone; a file that the last process of an earlier round removed is not used."""
    import fcntl  # not on Windows, where nothing is distributed

    # The last process removes the file while others may wait for its lock: what they get then is no longer there.
    while True:
        with open(path, "a", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                file.seek(0, os.SEEK_END)
                yield file
                return


def _require_writable(folder: Path) -> None:
    try:
        create_folder(folder)
    except OSError:
        pass
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise AssertionError(f"Cache folder {folder} is not writable")
