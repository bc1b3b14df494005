"""The file of an exported step: versioned, with a checksum over all of it, written as a whole or not at all.

Layout: 12 bytes `MAGIC`, 4 bytes format version, 32 bytes SHA-256 of the rest, 8 bytes length of the header, the header
(JSON, compressed), and the bytes of the tensors one after another. Numbers are little endian. Nothing in it is a
program, and reading it executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zlib
from typing import Any, BinaryIO, Dict, Iterator, Mapping, Sequence, Tuple, Union

import torch

from ..capture.plain_values import dtype_name, dtype_named
from ..diagnostics import ExecutableError, suggest_file
from ..support.atomic_files import replacing_file

__all__ = ["Path", "is_step_file", "make_damaged_error", "read_step_file", "write_step_file"]

Path = Union[str, "os.PathLike[str]"]

MAGIC = b"PORTINGSTEP\n"
VERSION = 1

_HEAD = struct.Struct("<12sI32sQ")
_START_OF_CHECKED = 12 + 4 + 32
_CHUNK = 1 << 22
_MAX_HEADER_BYTES = 1 << 27


def write_step_file(path: Path, header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Write plain values and tensors as one file.

    Raises OSError when the folder is missing, full or not writable; the file that was there before is there still.
    """
    layout, dense = [], []
    for name, tensor in tensors.items():
        values = tensor.detach().contiguous()
        layout.append([name, dtype_name(values.dtype), list(values.shape)])
        dense.append(values)
    text = zlib.compress(json.dumps({**header, "tensors": layout}, allow_nan=False).encode())
    with replacing_file(path) as file:
        file.write(_HEAD.pack(MAGIC, VERSION, b"\0" * 32, len(text)))
        digest = hashlib.sha256(struct.pack("<Q", len(text)))
        contents = (values.reshape(-1).view(torch.uint8).numpy().data if values.numel() else b"" for values in dense)
        for part in (text, *contents):
            file.write(part)
            digest.update(part)
        # the checksum is known once everything is written; until then the head holds zeros, which fit no content
        file.seek(0)
        file.write(_HEAD.pack(MAGIC, VERSION, digest.digest(), len(text)))


def is_step_file(path: Path) -> bool:
    """Tell a file that begins as exported steps do from any other, and from none."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_step_file(path: Path) -> Tuple[Dict[str, Any], Dict[str, torch.Tensor]]:
    """Return the plain values and the tensors of a file.

    Raises ExecutableError: E023 for a file that is damaged or no exported step, E024 for one of another format.
    """
    if not os.path.isfile(path):
        if os.path.isdir(path):
            raise make_damaged_error(path, "it is a folder", help="name the file in it that `porting export` wrote")
        raise make_damaged_error(path, "there is no such file", help=suggest_file(path))
    with open(path, "rb") as file:
        length = _check_file(path, file)
        file.seek(_HEAD.size)
        try:
            header = json.loads(zlib.decompressobj().decompress(file.read(length), _MAX_HEADER_BYTES))
        except (ValueError, zlib.error, RecursionError):
            raise make_damaged_error(path, "its header is no JSON") from None
        if not isinstance(header, dict):
            raise make_damaged_error(path, "its header is no table")
        layout = header.pop("tensors", None)
        if not isinstance(layout, list):
            raise make_damaged_error(path, "it lists no tensors")
        return header, dict(_read_tensors(path, file, layout))


def make_damaged_error(path: Path, fault: str, *, help: str = "") -> ExecutableError:
    """Return the error that says why the file at `path` cannot be used."""
    return ExecutableError.of(
        "E023",
        message=f"`{os.fspath(path)}` cannot be read: {fault}",
        help=help or "export the step again: `porting export PROGRAM:FUNCTION -o FILE`",
    )


def _check_file(path: Path, file: BinaryIO) -> int:
    """Check everything before the header, and the checksum over the rest; return the length of the header."""
    head = file.read(_HEAD.size)
    if head[: len(MAGIC)] != MAGIC[: len(head)] or not head:
        raise make_damaged_error(path, "it is no exported step")
    if len(head) < _HEAD.size:
        raise make_damaged_error(path, "it ends within its head")
    _magic, version, checksum, length = _HEAD.unpack(head)
    if version != VERSION:
        raise ExecutableError.of(
            "E024",
            message=f"`{os.fspath(path)}` has the format {version}, this version of porting reads {VERSION}",
            help="export the step again with this version",
        )
    room = os.fstat(file.fileno()).st_size - _HEAD.size
    if length > min(room, _MAX_HEADER_BYTES):
        raise make_damaged_error(path, f"it ends after {room} of {length} bytes of its header")
    file.seek(_START_OF_CHECKED)
    digest = hashlib.sha256()
    for part in iter(lambda: file.read(_CHUNK), b""):
        digest.update(part)
    if digest.digest() != checksum:
        raise make_damaged_error(path, "its content does not match its checksum: it was cut off or changed")
    return int(length)


def _read_tensors(path: Path, file: BinaryIO, layout: Sequence[Any]) -> Iterator[Tuple[str, torch.Tensor]]:
    room = os.fstat(file.fileno()).st_size
    for entry in layout:
        try:
            name, dtype, shape = entry
            sizes = [int(size) for size in shape]
            empty = torch.empty([0], dtype=dtype_named(dtype))
            count = math.prod(sizes) * empty.element_size() if min(sizes, default=0) >= 0 else -1
        except (TypeError, ValueError, OverflowError):
            raise make_damaged_error(path, f"a tensor is described by {entry!r:.80}") from None
        if not isinstance(name, str) or not 0 <= count <= room - file.tell():
            raise make_damaged_error(path, f"it ends within the tensor {name!r:.80}")
        content = bytearray(file.read(count))
        flat = torch.frombuffer(content, dtype=empty.dtype) if count else empty
        yield name, flat.reshape(sizes)
