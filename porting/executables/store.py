"""Store executables in a folder for each key, written whole or not at all, for any number of processes.

Layout of `<cache folder>/programs/`:

* `<digest>/` an executable: `manifest.json`, `explanation.json.gz` and the files of its programs;
* `.new-*` one that is being written, `.removing-*` one that is being removed: whoever comes later clears them away when
  their process has died, which shows in the locks that it held;
* `.locks/` one file for each key that somebody compiles; `.failures/` what could not be compiled, and why.

A reader holds a shared lock on the manifest until it has loaded the programs; eviction takes only what nobody holds.
"""

from __future__ import annotations

import errno
import functools
import json
import logging
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

from ..diagnostics import Finding, log_finding
from ..support.atomic_files import sync_folder, write_atomically
from . import trust
from .entry import MANIFEST, DamagedEntryError, Entry, Manifest, is_digest, read_manifest, verify_files, write_entry
from .folders import LockUnsupportedError, lock_file, new_folder, remove_folder, sweep, try_lock
from .identity import ExecutableKey
from .machine import collect_versions, find_compiler
from .settings import PROGRAMS, find_cache_folder, format_bytes, read_max_cache_bytes
from .sources import record_sources

__all__ = ["ExecutableStore", "Failures", "StoredEntry"]

_logger = logging.getLogger("porting")

# Folders that were reported as unusable: once in a process is enough.
_told: Set[Tuple[str, str]] = set()

_EXISTS = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@dataclass(frozen=True)
class StoredEntry:
    """What `list_entries` says of an executable; without a `manifest` it is damaged, and `problem` says how."""

    digest: str
    folder: Path
    manifest: Optional[Manifest]
    problem: str
    num_bytes: int
    last_used: float


class ExecutableStore:
    """The executables of one cache folder; no method raises for a folder that cannot be used, or for damaged files.

    Such faults are reported instead: E004 once for a folder, also for one that others can write to, and E005 for each
    damaged executable. `report` gets these findings; without it they are logged. `max_bytes` limits all executables
    together; the least recently used go first. `failures` remembers what could not be compiled.
    """

    def __init__(
        self,
        folder: Union[str, os.PathLike[str], None] = None,
        *,
        max_bytes: Optional[int] = None,
        report: Optional[Callable[[Finding], None]] = None,
    ) -> None:
        """Use `folder`, or the one that the environment names; nothing is read or made yet."""
        self.folder = find_cache_folder(folder)
        self.programs = self.folder / PROGRAMS
        self.max_bytes = read_max_cache_bytes() if max_bytes is None else max_bytes
        self._report = report or log_finding
        self.failures = Failures(self.programs, report=lambda error: self._report_unusable(error, "keeps nothing"))

    # -- finding -----------------------------------------------------------------------------------------------------

    def find(self, key: ExecutableKey) -> Optional[Entry]:
        """Return the executable of `key`, checked and held, or None; close it when its programs are loaded.

        A damaged one is reported (E005) and counts as missing.
        """
        return None if key.opaque else self.open(key.digest, sections=key.sections)

    def open(self, digest: str, *, sections: Optional[Mapping[str, str]] = None) -> Optional[Entry]:
        """Return the executable with this digest, checked and held, or None.

        Without the `sections` of its key nothing says that it fits this machine.
        """
        folder = self.programs / digest
        if not self._is_trusted(folder, [MANIFEST]):
            return None
        was_there = folder.is_dir()
        try:
            try:
                held = os.open(folder / MANIFEST, os.O_RDONLY)
            except FileNotFoundError:
                # another process may have put the whole entry there in the meantime
                held = os.open(folder / MANIFEST, os.O_RDONLY)
        except FileNotFoundError:
            if was_there and folder.is_dir():
                self._report_damaged(digest, "the manifest is missing")
            return None
        except OSError as error:
            self._report_unusable(error, "is not read")
            return None
        entry = self._check_entry(folder, held, sections)
        if entry is None:
            os.close(held)
        return entry

    def _check_entry(self, folder: Path, held: int, sections: Optional[Mapping[str, str]]) -> Optional[Entry]:
        """Check an entry whose manifest is open; None for one that is damaged, or is being removed at this moment."""
        # where there are no locks nobody removes an entry either
        with suppress(LockUnsupportedError):
            if not try_lock(held, shared=True):
                return None
        if not _is_at(held, folder / MANIFEST):
            return None
        try:
            manifest = read_manifest(folder)
            if not self._is_trusted(folder, manifest.files):
                return None
            if sections is not None and dict(manifest.sections) != dict(sections):
                different = [name for name, value in sections.items() if manifest.sections.get(name) != value]
                raise DamagedEntryError(f"it was made for another {' and '.join(different) or 'key'}")
            verify_files(folder, manifest)
        except DamagedEntryError as error:
            if _is_at(held, folder / MANIFEST):
                self._report_damaged(folder.name, str(error))
            return None
        if sections is not None:
            # a folder that can only be read has somebody else who decides what goes
            with suppress(OSError):
                os.utime(folder / MANIFEST)
        return Entry(folder, manifest, held)

    # -- keeping -----------------------------------------------------------------------------------------------------

    def keep(
        self,
        key: ExecutableKey,
        files: Path,
        content: Mapping[str, Any],
        *,
        sources: Optional[Mapping[str, Any]] = None,
        because: Sequence[Mapping[str, Any]] = (),
        replace: bool = False,
    ) -> bool:
        """Copy the folder `files` into the store as the executable of `key`; True when the store has one afterwards.

        `content` is what `Manifest.content` holds; `sources` is what `record_sources` returned, which is called without
        it; `because` is why nothing was found. Of several processes that keep the same key the first wins, unless
        `replace`; a damaged executable is always replaced. What cannot be kept is reported (E004), and then False is
        returned.
        """
        if key.opaque or not self._is_trusted(self.programs / key.digest):
            return False
        recorded = record_sources(key.source_files) if sources is None else sources
        num_bytes = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
        if num_bytes > self.max_bytes:
            message = f"an executable of {format_bytes(num_bytes)} is larger than the whole cache may be"
            room = f"`{self.folder}` may take {format_bytes(self.max_bytes)}"
            remedy = "set PORTING_CACHE_MAX_BYTES to more, such as 8G"
            self._report(Finding("E004", message=message, notes=room, help=remedy))
            return False
        try:
            trust.create_folder(self.programs)
            sweep(self.programs)
            with new_folder(self.programs) as unfinished:
                write_entry(unfinished, key, files, content, sources=recorded, because=because)
                self.put(unfinished, key.digest, replace=replace)
            self.shrink(spared=key.digest)
        except OSError as error:
            self._report_unusable(error, "keeps nothing")
            return False
        return True

    def put(self, unfinished: Path, digest: str, *, replace: bool = False) -> bool:
        """Give a finished entry its name, unless there is a whole one already; OSError if that fails."""
        folder = self.programs / digest
        for _attempt in range(5):
            try:
                os.rename(unfinished, folder)
                sync_folder(self.programs)
                return True
            except OSError as error:
                if error.errno not in _EXISTS:
                    raise
            with suppress(DamagedEntryError):
                verify_files(folder, read_manifest(folder))
                if not replace:
                    return False
            remove_folder(folder, patience_seconds=5.0)
        return False

    def shrink(self, *, max_bytes: Optional[int] = None, spared: str = "") -> int:
        """Remove the least recently used executables until the others fit; returns the bytes that became free.

        Those that some process is loading stay, and the one with the digest `spared`.
        """
        limit = self.max_bytes if max_bytes is None else max_bytes
        found = sorted(self.list_entries(), key=lambda entry: entry.last_used)
        excess, freed = sum(entry.num_bytes for entry in found) - limit, 0
        for entry in found:
            if freed >= excess:
                break
            if entry.digest != spared and remove_folder(entry.folder):
                freed += entry.num_bytes
        return freed

    # -- one process at a time ---------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, key: ExecutableKey, *, timeout_seconds: float = 900.0) -> Iterator[bool]:
        """Let one process after the other work on `key`; yields False when the lock could not be had.

        Look again with `find` once inside: another process may have kept the executable meanwhile. A process that waits
        for more than 2 s says so in the log. The lock ends with the process, however that ends.
        """
        path = self.programs / ".locks" / f"{key.digest}.lock"
        model = f" of {key.model}" if key.model else ""
        tell = functools.partial(_logger.warning, "waiting for another process that compiles the same step%s", model)
        with ExitStack() as stack:
            try:
                trust.create_folder(path.parent)
                is_held = stack.enter_context(lock_file(path, timeout_seconds=timeout_seconds, tell=tell))
            except OSError as error:
                self._report_unusable(error, "has no locks")
                is_held = False
            yield is_held

    # -- looking after -----------------------------------------------------------------------------------------------

    def list_entries(self, *, is_thorough: bool = False) -> List[StoredEntry]:
        """List all executables, the damaged ones too; the content of their files is read only if `is_thorough`."""
        try:
            names = sorted(os.listdir(self.programs))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._report_unusable(error, "is not read")
            return []
        folders = [self.programs / name for name in names if is_digest(name)]
        found = [_describe_entry(folder, is_thorough=is_thorough) for folder in folders]
        return [entry for entry in found if entry is not None]

    def remove(self, digest: str) -> bool:
        """Remove an executable, even one that some process is loading; False if that was not possible."""
        return remove_folder(self.programs / digest, patience_seconds=2.0, is_forced=True)

    def sweep(self) -> int:
        """Clear away what processes that died left behind; returns how many leftovers."""
        return sweep(self.programs)

    def _is_trusted(self, folder: Path, names: Iterable[str] = ()) -> bool:
        """Tell whether only trusted users can change the store, the entry `folder` and its files; report it if not."""
        try:
            trust.require_trusted_folder(self.folder)
            trust.require_trusted_entry(folder, names)
        except trust.UntrustedError as error:
            trust.report_untrusted(self.folder, error, self._report)
            return False
        return True

    # -- reports -----------------------------------------------------------------------------------------------------

    def _report_unusable(self, error: OSError, consequence: str) -> None:
        reason = "it has no file locks" if isinstance(error, LockUnsupportedError) else error.strerror or str(error)
        if (str(self.programs), consequence) in _told:
            return
        _told.add((str(self.programs), consequence))
        self._report(
            Finding(
                "E004",
                message=f"the executable cache `{self.folder}` {consequence}: {reason[:1].lower()}{reason[1:]}",
                notes="training works; programs are compiled anew in each process",
                help="make the folder writable and give it room, or name another with PORTING_CACHE_DIR",
            )
        )

    def _report_damaged(self, digest: str, reason: str) -> None:
        self._report(
            Finding(
                "E005",
                message=f"the executable {digest[:8]} on disk cannot be used: {reason}",
                notes=f"it lies in `{self.programs / digest}`; it counts as missing and is replaced by the next one",
                help=f"nothing need be done; `porting cache clear {digest[:8]}` removes it",
            )
        )


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _describe_entry(folder: Path, *, is_thorough: bool) -> Optional[StoredEntry]:
    """Describe an entry; None if it has just been removed."""
    try:
        manifest = read_manifest(folder)
        if is_thorough:
            verify_files(folder, manifest)
        used = os.stat(folder / MANIFEST).st_mtime
        return StoredEntry(folder.name, folder, manifest, "", manifest.num_bytes, used)
    except DamagedEntryError as error:
        problem = str(error)
    except OSError:
        problem = "the manifest cannot be read"
    try:
        used = os.lstat(folder).st_mtime
    except OSError:
        return None
    paths = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else [folder]
    sizes = [path.stat().st_size for path in paths if path.exists()]
    return StoredEntry(folder.name, folder, None, problem, sum(sizes), used)


# -- failures ----------------------------------------------------------------------------------------------------------

_FAILURES_FORMAT = "porting-failures"
_MAX_RECORD_BYTES = 1 << 20
_MAX_REASON = 2000


class Failures:
    """The failures of one store: a small file for each key.

    They hold for one compiler: with another, everything is tried again. Versions and processor belong to the key.
    """

    def __init__(self, programs: Path, *, report: Callable[[OSError], None]) -> None:
        """Remember in `programs`, the folder of the store; `report` is told of what cannot be written there."""
        self._folder = programs / ".failures"
        self._locks = programs / ".locks"
        self._report = report

    def note(self, key: ExecutableKey, candidate: str, reason: str) -> None:
        """Remember that `candidate` could not be compiled for `key`, and why."""
        try:
            trust.create_folder(self._folder)
            trust.create_folder(self._locks)
            with lock_file(self._locks / f"failures-{key.digest}.lock", timeout_seconds=5.0):
                path = self._find_path(key.digest)
                record = _read_record(path) or {"format": _FAILURES_FORMAT, "digest": key.digest, "failures": {}}
                now = time.time()
                failure = {"reason": reason[:_MAX_REASON], "when": now, "compiler": find_compiler()}
                record["failures"][candidate] = failure
                record.update(when=now, model=key.model, versions=collect_versions())
                write_atomically(path, json.dumps(record).encode())
        except OSError as error:
            self._report(error)

    def read(self, digest: str) -> Dict[str, str]:
        """Return the reasons by candidate, of failures with the compiler of this process."""
        failures = (_read_record(self._find_path(digest)) or {"failures": {}})["failures"]
        return {name: item["reason"] for name, item in failures.items() if item.get("compiler") == find_compiler()}

    def read_all(self) -> Dict[str, Dict[str, Any]]:
        """Return all records by digest: `model`, `when` and `failures`, each with a `reason`.

        Those that cannot be read are left out.
        """
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return {}
        paths = [self._folder / name for name in names if name.endswith(".json") and not name.startswith(".")]
        records = {path.stem: _read_record(path) for path in paths}
        return {digest: record for digest, record in records.items() if record is not None}

    def forget(self, digest: str) -> bool:
        """Let what failed for a key be tried again; True if something was remembered."""
        try:
            self._find_path(digest).unlink()
        except OSError:
            return False
        return True

    def _find_path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def _read_record(path: Path) -> Optional[Dict[str, Any]]:
    """Read the record of a key; None for what is not one, such as a file that somebody else wrote."""
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read(_MAX_RECORD_BYTES))
        is_record = record["format"] == _FAILURES_FORMAT
        reasons = [item["reason"] for item in record["failures"].values()]
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None
    return record if is_record and all(isinstance(reason, str) for reason in reasons) else None
