"""Executables in one file, to take to another machine of the same kind, and back into a store.

The file is a zip: `porting-executables.json` lists the executables, and each has a folder with its files. Nothing of it
is believed: names, lengths and checksums are those of the manifests, and all is checked before anything is kept. The
programs are machine code, which a checksum says nothing about: import only what you would run.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zipfile
import zlib
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Tuple, Union

from ..diagnostics import ExecutableError, Severity
from ..support.atomic_files import replacing_file
from . import trust
from .entry import (
    EXPLANATION,
    MANIFEST,
    DamagedEntryError,
    Entry,
    FileFacts,
    Manifest,
    compute_checksum,
    is_digest,
    pack_explanation,
    read_explanation,
    read_manifest,
    sync_tree,
    verify_files,
)
from .folders import new_folder
from .identity import compute_digest
from .machine import list_machine_differences
from .settings import format_bytes
from .store import ExecutableStore

__all__ = ["Imported", "export_archive", "import_archive"]

_INDEX = "porting-executables.json"
_FORMAT = "porting-executables"
_SCHEMA = 1
_MAX_INDEX_BYTES = 1 << 20
_MAX_MEMBERS = 100_000
_CHUNK = 1 << 20

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, KeyError, OverflowError)

AnyPath = Union[str, "os.PathLike[str]"]


class Imported(NamedTuple):
    """What an import did: the executables that it kept, and those that the store had already."""

    kept: Tuple[Manifest, ...]
    known: Tuple[Manifest, ...]


# -- export ----------------------------------------------------------------------------------------------------------


def export_archive(
    store: ExecutableStore, path: AnyPath, digests: Sequence[str], *, with_sources: bool = False
) -> List[Manifest]:
    """Write executables into one file, all or nothing; returns the manifests of those that are in it.

    The user's sources, which explain later changes, stay at home unless `with_sources`. Damaged executables are
    reported by the store and left out. Raises OSError for a file that cannot be written.
    """
    with ExitStack() as stack, replacing_file(path) as file:
        entries = [entry for entry in map(store.open, digests) if entry is not None]
        for entry in entries:
            stack.callback(entry.close)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            index = {"format": _FORMAT, "schema": _SCHEMA, "created": time.time()}
            archive.writestr(_INDEX, json.dumps({**index, "executables": [entry.digest for entry in entries]}))
            return [_export_entry(archive, entry, with_sources=with_sources) for entry in entries]


def _export_entry(archive: zipfile.ZipFile, entry: Entry, *, with_sources: bool) -> Manifest:
    manifest, folder = entry.manifest, entry.digest
    own: Dict[str, bytes] = {}
    if not with_sources and EXPLANATION in manifest.files:
        try:
            components = read_explanation(entry.folder, manifest)["components"]
        except DamagedEntryError:
            components = {}  # the programs are whole, and they are what counts
        own[EXPLANATION] = explanation = pack_explanation({"components": components, "sources": {}})
        files = {**manifest.files, EXPLANATION: FileFacts(len(explanation), compute_checksum(explanation))}
        manifest = replace(manifest, files=files, model={**manifest.model, "program": ""})
    archive.writestr(f"{folder}/{MANIFEST}", manifest.to_json())
    for name in sorted(manifest.files):
        if name in own:
            archive.writestr(f"{folder}/{name}", own[name])
        else:
            archive.write(entry.file(name), f"{folder}/{name}")
    return manifest


# -- import ----------------------------------------------------------------------------------------------------------


def import_archive(store: ExecutableStore, path: AnyPath, *, is_forced: bool = False) -> Imported:
    """Check all executables of a file and keep them, all or none.

    Raises ExecutableError: E005 for a damaged file, E009 for executables of another machine or version unless
    `is_forced`, E004 for what does not fit into the store. Raises OSError for a file or a folder that cannot be used.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifests = _read_manifests(archive)
            _require_usable(store, path, manifests, is_forced=is_forced)
            return _import_all(store, archive, manifests)
    except (DamagedEntryError, *_BROKEN) as error:
        is_known = isinstance(error, DamagedEntryError)
        reason = str(error) if is_known else f"it is no whole zip file ({str(error) or type(error).__name__})"
        raise ExecutableError.of(
            "E005",
            message=f"`{os.fspath(path)}` cannot be imported: {reason}",
            notes="nothing was kept",
            help="export it again, and compare the copies",
            severity=Severity.ERROR,
        ) from None


def _read_manifests(archive: zipfile.ZipFile) -> List[Manifest]:
    names = archive.namelist()
    if len(names) > _MAX_MEMBERS or len(set(names)) != len(names):
        raise DamagedEntryError("it has too many files, or several of one name")
    if any(info.compress_type not in _COMPRESSIONS for info in archive.infolist()):
        raise DamagedEntryError("it is packed in a way that `porting cache export` does not use")
    index = json.loads(_read_member(archive, _INDEX, _MAX_INDEX_BYTES).decode("utf-8")) if _INDEX in names else None
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise DamagedEntryError("it was not written by `porting cache export`")
    if index.get("schema") != _SCHEMA:
        raise DamagedEntryError(f"it has version {str(index.get('schema'))[:20]}; this package reads {_SCHEMA}")
    digests = index.get("executables")
    if not isinstance(digests, list) or not all(map(is_digest, digests)) or len(set(digests)) != len(digests):
        raise DamagedEntryError("its list of executables is damaged")
    manifests = [_read_manifest(archive, digest) for digest in digests]
    expected = [f"{manifest.digest}/{name}" for manifest in manifests for name in (MANIFEST, *manifest.files)]
    foreign = sorted({*names} - {_INDEX, *expected})
    if foreign:
        raise DamagedEntryError(f"it holds `{foreign[0][:100]}`, which belongs to no executable")
    return manifests


def _read_manifest(archive: zipfile.ZipFile, digest: str) -> Manifest:
    try:
        manifest = Manifest.from_json(_read_member(archive, f"{digest}/{MANIFEST}", 8 << 20))
    except KeyError:
        raise DamagedEntryError(f"executable {digest[:8]} is missing") from None
    if manifest.digest != digest or compute_digest(dict(manifest.sections)) != digest:
        raise DamagedEntryError(f"executable {digest[:8]} has the manifest of another one")
    return manifest


def _read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise DamagedEntryError(f"`{name}` is too long")
    return content


def _require_usable(store: ExecutableStore, path: AnyPath, manifests: Sequence[Manifest], *, is_forced: bool) -> None:
    """Refuse executables of another machine unless `is_forced`, and those that the store cannot take."""
    reasons = [reason for m in manifests for reason in list_machine_differences(m.versions, m.processor)]
    if reasons and not is_forced:
        raise ExecutableError.of(
            "E009",
            message=f"the executables of `{os.fspath(path)}` are for another machine or version",
            notes=tuple(dict.fromkeys(reasons)),
            help="export them on a machine like this one, or compile here; `--force` keeps them all the same",
        )
    try:
        trust.require_trusted_folder(store.folder)
    except trust.UntrustedError as error:
        message = f"the executable cache `{store.folder}` is not used: {error}"
        raise ExecutableError.of("E004", message=message, help=error.remedies, severity=Severity.ERROR) from None
    num_bytes = sum(manifest.num_bytes for manifest in manifests)
    if num_bytes > store.max_bytes:
        raise ExecutableError.of(
            "E004",
            message=f"`{os.fspath(path)}` holds {format_bytes(num_bytes)}, more than the whole cache may take",
            notes=f"`{store.folder}` may take {format_bytes(store.max_bytes)}",
            help="set PORTING_CACHE_MAX_BYTES to more, or export fewer executables",
            severity=Severity.ERROR,
        )


def _import_all(store: ExecutableStore, archive: zipfile.ZipFile, manifests: Sequence[Manifest]) -> Imported:
    trust.create_folder(store.programs)
    store.sweep()
    kept: List[Manifest] = []
    known: List[Manifest] = []
    with ExitStack() as stack:
        folders = [stack.enter_context(new_folder(store.programs)) for _manifest in manifests]
        for folder, manifest in zip(folders, manifests):
            _extract_files(archive, manifest, folder)
        for folder, manifest in zip(folders, manifests):
            (kept if store.put(folder, manifest.digest) else known).append(manifest)
    store.shrink()
    return Imported(tuple(kept), tuple(known))


def _extract_files(archive: zipfile.ZipFile, manifest: Manifest, folder: Path) -> None:
    """Write the files of one executable, not a byte more than its manifest says, and check them."""
    for name, facts in manifest.files.items():
        target = folder.joinpath(*name.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        room = facts.num_bytes
        with archive.open(f"{manifest.digest}/{name}") as member, open(target, "xb") as file:
            for chunk in iter(lambda: member.read(_CHUNK), b""):  # noqa: B023 - used up within the iteration
                room -= len(chunk)
                if room < 0:
                    raise DamagedEntryError(f"`{name}` is longer than its manifest says")
                file.write(chunk)
    (folder / MANIFEST).write_bytes(manifest.to_json())
    verify_files(folder, read_manifest(folder), names=list(manifest.files))
    sync_tree(folder)
