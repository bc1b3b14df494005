"""Reading a file of `torch.save`: only tensors and containers, against the checksums that torch does not check."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from typing import Any, Union

import torch

from porting.diagnostics import CheckpointError

__all__ = ["make_damaged_error", "read_tensors"]

_CHUNK_BYTES = 1 << 20
_ZIP_START = b"PK\x03\x04"


def read_tensors(path: Union[str, os.PathLike[str]]) -> Any:
    """Load `path` onto the CPU with `weights_only=True`.

    Raises CheckpointError K001 that says what is wrong with the file, and OSError when it cannot be opened.
    """
    with open(path, "rb") as file:
        start = file.read(len(_ZIP_START))
    if not start:
        raise make_damaged_error(path, "it is empty")
    if start == _ZIP_START:
        _check_archive(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"(?:GLOBAL|class) ([\w.]+\.\w+)", str(error))
        if found is None:
            reason = f"it is no file of `torch.save`, or corrupt: {_take_first_line(error)}"
            raise make_damaged_error(path, reason) from error
        reason = f"it holds an object of {found.group(1)}, not only tensors; loading that would run code from the file"
        remedy = "save the weights alone, `torch.save(model.state_dict(), path)`, where the file was made"
        raise make_damaged_error(path, reason, remedy=remedy) from error
    except Exception as error:
        # damaged bytes lead torch's readers to any error: KeyError, EOFError, UnicodeDecodeError, OSError, ...
        reason = f"torch cannot read it: {type(error).__name__}: {_take_first_line(error)}"
        raise make_damaged_error(path, reason) from error


def make_damaged_error(
    path: Union[str, os.PathLike[str]], reason: str, *, remedy: str = "use another copy, or an earlier checkpoint"
) -> CheckpointError:
    """Make the error K001 for the file at `path`."""
    return CheckpointError.at_caller("K001", message=f"`{os.fspath(path)}` cannot be loaded", notes=reason, help=remedy)


def _check_archive(path: Union[str, os.PathLike[str]]) -> None:
    """Read every record against its checksum: torch.load would hand out weights with flipped bits."""
    try:
        with zipfile.ZipFile(path) as archive:
            for record in archive.infolist():
                # torch writes 0 where checksums are switched off
                if record.CRC:
                    with archive.open(record) as file:
                        while file.read(_CHUNK_BYTES):
                            pass
    except zipfile.BadZipFile as error:
        raise make_damaged_error(path, f"the archive is cut off or corrupt: {_take_first_line(error)}") from error


def _take_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no details"])[0]
