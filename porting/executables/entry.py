"""Read and write one executable on disk, a folder with its programs and a manifest that describes them.

Everything read here may be damaged, cut off, of another version, or made up by somebody: it is checked before use, and
the only error is `DamagedEntryError`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ..support.atomic_files import sync_folder
from .identity import ExecutableKey
from .machine import collect_versions, describe_processor
from .trust import withdraw_rights

__all__ = [
    "EXPLANATION",
    "MANIFEST",
    "SCHEMA",
    "DamagedEntryError",
    "Entry",
    "FileFacts",
    "Manifest",
    "compute_checksum",
    "is_digest",
    "pack_explanation",
    "read_explanation",
    "read_manifest",
    "sync_tree",
    "verify_files",
    "write_entry",
]

MANIFEST = "manifest.json"
EXPLANATION = "explanation.json.gz"
"""The file with the components of the key and the sources that were read: what `why` compares."""

SCHEMA = 1
_FORMAT = "porting-executable"
_DIGEST = re.compile(r"[0-9a-f]{32}")
_MAX_MANIFEST_BYTES = 8 << 20
_MAX_EXPLANATION_BYTES = 64 << 20
_CHUNK = 1 << 20


class DamagedEntryError(Exception):
    """An executable on disk cannot be used; the text says why, in a few words."""


class FileFacts(NamedTuple):
    """The length and the checksum of one file."""

    num_bytes: int
    checksum: str


@dataclass(frozen=True)
class Manifest:
    """What is known of an executable without loading it.

    `sections` are the hashes of the parts of its key. `model` describes the model: `name`, `mode`, `program` (the
    user's), `num_operators`. `content` is what its maker wrote down: `choice` (see `Choice`), `speed_up` over plain
    replay, `tuning` (the table of measurements), `times`. `because` are the changes that made it necessary. Times are
    seconds since 1970.
    """

    digest: str
    sections: Mapping[str, str]
    created: float
    model: Mapping[str, Any]
    engine: str
    versions: Mapping[str, str]
    processor: Mapping[str, Any]
    files: Mapping[str, FileFacts]
    content: Mapping[str, Any] = field(default_factory=dict)
    because: Tuple[Mapping[str, Any], ...] = ()

    @property
    def num_bytes(self) -> int:
        """The length of all files together, without the manifest."""
        return sum(facts.num_bytes for facts in self.files.values())

    def to_json(self) -> bytes:
        """Return the text of the manifest."""
        values = {name: getattr(self, name) for name in _FIELDS}
        files = dict(sorted(self.files.items()))
        return json.dumps({"format": _FORMAT, "schema": SCHEMA, **values, "files": files}, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Read the text of a manifest; DamagedEntryError for anything else."""
        values = _parse_json(text, what="the manifest")
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise DamagedEntryError("the manifest is not one of an executable")
        if values.get("schema") != SCHEMA:
            raise DamagedEntryError(f"it has version {values.get('schema')!r:.20}; this package reads {SCHEMA}")
        wrong = [name for name, is_right in _FIELDS.items() if not is_right(values.get(name))]
        if wrong:
            raise DamagedEntryError(f"the manifest lacks {', '.join(wrong)}")
        values["files"] = {name: FileFacts(*facts) for name, facts in values["files"].items()}
        values["because"] = tuple(values["because"])
        return cls(**{name: values[name] for name in _FIELDS})


def is_digest(value: object) -> bool:
    """Tell whether `value` is the name of an executable, or a checksum: 32 hexadecimal digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _is_files(value: object) -> bool:
    """Tell whether files stay in their folder, on every system, and have a length and a checksum each."""
    if not isinstance(value, dict) or MANIFEST in value:
        return False
    for name, facts in value.items():
        if {"", ".", ".."}.intersection(name.split("/")) or re.search(r"[\\:\0]", name):
            return False
        is_pair = isinstance(facts, list) and len(facts) == 2
        if not (is_pair and type(facts[0]) is int and facts[0] >= 0 and is_digest(facts[1])):
            return False
    return True


_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "digest": is_digest,
    "sections": _is_texts,
    # the range that `time.localtime` takes everywhere
    "created": lambda value: type(value) in (int, float) and 0 <= value < 2**35,
    "model": lambda value: isinstance(value, dict),
    "engine": lambda value: isinstance(value, str),
    "versions": _is_texts,
    "processor": lambda value: isinstance(value, dict),
    "files": _is_files,
    "content": lambda value: isinstance(value, dict),
    "because": lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
}


@dataclass
class Entry:
    """An executable that was found and checked; until `close` nobody removes it, unless it is told to.

    `folder` has the files that were kept, under the names they had.
    """

    folder: Path
    manifest: Manifest
    _held: Optional[int] = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """The digest of its key."""
        return self.manifest.digest

    def file(self, name: str) -> Path:
        """Return the path of a file that was kept as `name`; KeyError for another one."""
        if name not in self.manifest.files:
            raise KeyError(name)
        return self.folder.joinpath(*name.split("/"))

    def close(self) -> None:
        """Let go of the executable, once its programs are loaded."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def write_entry(
    folder: Path,
    key: ExecutableKey,
    files: Path,
    content: Mapping[str, Any],
    *,
    sources: Mapping[str, Any],
    because: Sequence[Mapping[str, Any]],
) -> Manifest:
    """Copy all of `files` into `folder`, with the manifest and the explanation; links are followed. OSError if not."""
    for path in sorted(files.rglob("*")):
        if path.is_file() and path.relative_to(files).as_posix() not in (MANIFEST, EXPLANATION):
            target = folder / path.relative_to(files)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    explanation = pack_explanation({"components": key.components, "sources": sources})
    (folder / EXPLANATION).write_bytes(explanation)
    graph = key.components.get("graph", {})
    manifest = Manifest(
        digest=key.digest,
        sections=key.sections,
        created=time.time(),
        model={
            "name": key.model,
            "mode": str(graph.get("mode", "")),
            "program": str(sources.get("program", "")),
            "num_operators": len(graph.get("operators", ())),
        },
        engine=str(key.components.get("engine", {}).get("name", "")),
        versions=collect_versions(),
        processor=describe_processor(),
        files={
            path.relative_to(folder).as_posix(): FileFacts(path.stat().st_size, compute_checksum(path))
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
        content=content,
        because=tuple(because),
    )
    (folder / MANIFEST).write_bytes(manifest.to_json())
    sync_tree(folder)
    return manifest


def sync_tree(folder: Path) -> None:
    """Let all files of a folder survive a loss of power, and nobody but their owner change them."""
    for path in [*folder.rglob("*"), folder]:
        withdraw_rights(path)
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an entry; DamagedEntryError says what is wrong with it.

    The length of every file is compared, its content is not.
    """
    try:
        with open(folder / MANIFEST, "rb") as file:
            text = file.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise DamagedEntryError(f"the manifest cannot be read: {error.strerror}") from None
    if len(text) > _MAX_MANIFEST_BYTES:
        raise DamagedEntryError("the manifest is too long")
    manifest = Manifest.from_json(text)
    if manifest.digest != folder.name and not folder.name.startswith("."):
        raise DamagedEntryError("the manifest is one of another executable")
    for name, facts in manifest.files.items():
        _require_length(folder, name, facts)
    return manifest


def verify_files(folder: Path, manifest: Manifest, *, names: Optional[List[str]] = None) -> None:
    """Compare the content of files with the manifest; DamagedEntryError names the first that is another.

    Without `names` it is all that a program may load: not the explanation.
    """
    for name in [name for name in manifest.files if name != EXPLANATION] if names is None else names:
        facts = manifest.files[name]
        _require_length(folder, name, facts)
        try:
            found = compute_checksum(folder.joinpath(*name.split("/")))
        except OSError as error:
            raise DamagedEntryError(f"`{name}` cannot be read: {error.strerror}") from None
        if found != facts.checksum:
            raise DamagedEntryError(f"`{name}` has another content than when it was written")


def _require_length(folder: Path, name: str, facts: FileFacts) -> None:
    try:
        status = os.lstat(folder.joinpath(*PurePosixPath(name).parts))
    except (OSError, ValueError):
        raise DamagedEntryError(f"`{name}` is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise DamagedEntryError(f"`{name}` is not a file")
    if status.st_size != facts.num_bytes:
        raise DamagedEntryError(f"`{name}` has {status.st_size} bytes instead of {facts.num_bytes}")


def compute_checksum(source: Union[Path, bytes]) -> str:
    """Return the checksum of a file's content, or of bytes that are to be one."""
    digest = hashlib.blake2b(digest_size=16)
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def pack_explanation(explanation: Mapping[str, Any]) -> bytes:
    """Return what explains an executable as the content of its file; equal values give equal bytes."""
    return gzip.compress(json.dumps(explanation, sort_keys=True).encode(), mtime=0)


def read_explanation(folder: Path, manifest: Manifest) -> Dict[str, Any]:
    """Read the components and the sources that an entry was made of: `{"components": ..., "sources": ...}`.

    Raises DamagedEntryError where they are not as they were written.
    """
    if EXPLANATION not in manifest.files:
        raise DamagedEntryError("it has no explanation")
    verify_files(folder, manifest, names=[EXPLANATION])
    decompressor = zlib.decompressobj(wbits=31)
    try:
        text = decompressor.decompress((folder / EXPLANATION).read_bytes(), _MAX_EXPLANATION_BYTES)
    except (OSError, zlib.error) as error:
        raise DamagedEntryError(f"the explanation cannot be read: {error}") from None
    if decompressor.unconsumed_tail:
        raise DamagedEntryError("the explanation is too long")
    values = _parse_json(text, what="the explanation")
    parts = [values.get(name) for name in ("components", "sources")] if isinstance(values, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        raise DamagedEntryError("the explanation is incomplete")
    return values


def _parse_json(text: bytes, *, what: str) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise DamagedEntryError(f"{what} is not JSON") from None
