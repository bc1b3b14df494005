"""Read and write the file format of saved executables: a head, then sections with a length and a checksum each.

`save`, `loadExecutable` and PopTorch's own file functions use it. Layout: 12 bytes `MAGIC`, 4 bytes format version,
then for each section 4 bytes tag, 8 bytes length, 32 bytes SHA-256, and the content. Numbers are little endian.
``EXEC`` is the compressed record of the graph, ``META`` the pickled `PoptorchData`. Pickles run code when they are
read: open only files that you trust, as with PopTorch itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Mapping, Optional, Tuple, Union

from ...support.atomic_files import write_atomically
from ..errors import Error, native_error

__all__ = [
    "appendPoptorchMetadataToFile",
    "importPoptorchMetadataFromFile",
    "read_graph_record",
    "write_executable_file",
]

# A line end in it: a file that was copied as text is no longer one of these.
MAGIC = b"PORTING-SIM\n"
VERSION = 2

_HEAD = struct.Struct("<12sI")
_SECTION = struct.Struct("<4sQ32s")
_GRAPH, _METADATA = b"EXEC", b"META"

FileName = Union[str, Path]


def write_executable_file(filename: FileName, record: Mapping[str, Any], metadata: bytes) -> None:
    """Write the record of a graph and serialized metadata as one file."""
    _write_sections(filename, {_GRAPH: zlib.compress(json.dumps(record).encode()), _METADATA: metadata})


def appendPoptorchMetadataToFile(serialized_poptorch_metadata: bytes, filename: FileName) -> None:
    """Replace the metadata in the file of an executable; raises `poptorch.Error` for other files."""
    # in one piece: a program that ends halfway leaves the old file
    _write_sections(filename, {**_read_sections(filename), _METADATA: bytes(serialized_poptorch_metadata)})


def importPoptorchMetadataFromFile(filename: FileName) -> bytes:
    """Return the pickled metadata of a saved executable; `poptorch.Error` with the byte for a damaged file."""
    return _read_section(filename, _METADATA, "metadata")


def read_graph_record(filename: FileName) -> Any:
    """Return the record of the graph in a saved executable; `poptorch.Error` as above."""
    return json.loads(zlib.decompress(_read_section(filename, _GRAPH, "executable")))


def _read_section(filename: FileName, tag: bytes, what: str) -> bytes:
    sections = _read_sections(filename, only=tag)
    if tag not in sections:
        raise native_error(f"Invalid file {filename}: it has no {what}")
    return sections[tag]


def _write_sections(filename: FileName, sections: Dict[bytes, bytes]) -> None:
    parts = [_HEAD.pack(MAGIC, VERSION)]
    for tag, content in sections.items():
        parts += [_SECTION.pack(tag, len(content), hashlib.sha256(content).digest()), content]
    write_atomically(Path(filename), b"".join(parts))


def _read_sections(filename: FileName, *, only: Optional[bytes] = None) -> Dict[bytes, bytes]:
    """Return the contents of all sections, or of the one that is called `only`."""
    contents: Dict[bytes, bytes] = {}
    with open(filename, "rb") as file:
        for tag, start, length, checksum in _list_sections(filename, file):
            # the model's weights may be in another one, which is not read
            if only in (None, tag):
                file.seek(start)
                content = file.read(length)
                if hashlib.sha256(content).digest() != checksum:
                    raise _make_damage_error(filename, start, "the content does not match its checksum")
                contents[tag] = content
    return contents


def _list_sections(filename: FileName, file: BinaryIO) -> List[Tuple[bytes, int, int, bytes]]:
    """List tag, start, length and checksum of the sections of a file; their contents are not read."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(_HEAD.size)
    if head[: len(MAGIC)] != MAGIC:
        raise _make_damage_error(filename, 0, "it is not an executable that the simulator saved")
    if len(head) < _HEAD.size:
        raise _make_damage_error(filename, size, "it ends within its head")
    version = _HEAD.unpack(head)[1]
    if version != VERSION:
        raise _make_damage_error(filename, len(MAGIC), f"it has the format {version}, this version reads {VERSION}")
    # Heads alone tell whether the file is whole: a cut-off file is refused before anything of it is used.
    sections: List[Tuple[bytes, int, int, bytes]] = []
    position = _HEAD.size
    while position < size:
        if position + _SECTION.size > size:
            raise _make_damage_error(filename, position, "it ends within the head of a section")
        file.seek(position)
        tag, length, checksum = _SECTION.unpack(file.read(_SECTION.size))
        start = position + _SECTION.size
        if start + length > size:
            raise _make_damage_error(filename, size, f"it ends after {size - start} of {length} bytes of a section")
        sections.append((tag, start, length, checksum))
        position = start + length
    return sections


def _make_damage_error(filename: FileName, position: int, what: str) -> Error:
    return native_error(f"Invalid file {filename}: {what} (byte {position})")
