"""The file form of certificates: plain data with a version and a checksum.

A file whose checksum is not that of what it says was cut off or damaged, and is refused. Certificates are written and
read here alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Mapping, NoReturn, Type, TypeVar, Union

from porting.diagnostics import PortingError
from porting.support import plain_data
from porting.support.atomic_files import write_atomically
from porting.support.plain_data import WrongDataError, read_json

__all__ = ["read_file", "read_plain", "write_file"]

FORM = "porting certificate"

_OTHER_KIND = "it is no certificate of `porting verify`"

_Data = TypeVar("_Data")
_Path = Union[str, "os.PathLike[str]"]


def read_plain(kind: Type[_Data], plain: Any) -> _Data:
    """Make a dataclass of plain data; raises PortingError V004 where a type is wrong."""
    try:
        return plain_data.read_plain(kind, plain)
    except WrongDataError as error:
        _refuse_file("the certificate is damaged", str(error))


def write_file(path: _Path, plain: Mapping[str, Any], *, version: int) -> None:
    """Write plain values, as a whole or not at all; raises PortingError E029 where that is not possible."""
    content = {"form": FORM, "version": version, "checksum": _compute_checksum(plain), "certificate": plain}
    text = json.dumps(content, indent=1, allow_nan=False)
    try:
        write_atomically(path, f"{text}\n".encode())
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise PortingError.of("E029", message=f"`{os.fspath(path)}` cannot be written: {reason}") from error


def read_file(path: _Path, *, version: int) -> Any:
    """Read what `write_file` has written; raises PortingError V004 for a file that is damaged, foreign or newer."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8")
        content = read_json(text)
        checksum = _compute_checksum(content.get("certificate") if isinstance(content, dict) else None)
    except OSError as error:
        _refuse_file(f"`{name}` cannot be read", error.strerror or str(error))
    except WrongDataError as error:
        _refuse_file(f"`{name}` is damaged", str(error))
    except (ValueError, RecursionError) as error:
        # also a file that is no text, or has a number of thousands of digits
        _refuse_file(f"`{name}` cannot be read as a certificate", f"it is no JSON: {error}")
    if not isinstance(content, dict) or content.get("form") != FORM:
        _refuse_file(f"`{name}` cannot be read as a certificate", _OTHER_KIND)
    _check_version(name, content.get("version"), version)
    if content.get("checksum") != checksum:
        _refuse_file(f"`{name}` is damaged", "its checksum is not that of what it says: it was cut off, or damaged")
    return content["certificate"]


def _check_version(name: str, found: Any, own: int) -> None:
    if type(found) is int and found == own:
        return
    is_newer = type(found) is int and found > own
    said = found if type(found) is int else "none that is a number"
    note = f"the version of its form is {said}, and this porting reads {own}"
    remedy = "update porting: `pip install -U ipu-porting`" if is_newer else "make it again: `porting verify`"
    raise PortingError.of("V004", message=f"`{name}` is of another version", notes=note, help=remedy)


def _refuse_file(fault: str, note: str) -> NoReturn:
    remedy = "make it again with `porting verify PROGRAM:FUNCTION --out FILE`"
    raise PortingError.of("V004", message=fault, notes=note, help=remedy) from None


def _compute_checksum(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
