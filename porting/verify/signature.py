"""Sign certificates, and check who made a file, by OpenSSH's `ssh-keygen -Y`.

A signature lies beside its file as `FILE.sig`. This package has no cryptography of its own.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, Optional, Sequence, Union

from porting.diagnostics import PortingError

__all__ = ["NAMESPACE", "Signer", "check_signature", "name_signature", "sign"]

NAMESPACE = "ipu-porting-certificate"
"""What a signature is for: one of another kind of file is none of a certificate."""

_PROGRAM = "ssh-keygen"
_Path = Union[str, "os.PathLike[str]"]


class Signer(NamedTuple):
    """Who has signed a file: the name in the file of allowed signers, and what `ssh-keygen` says of the key."""

    name: str
    key: str


def name_signature(path: _Path) -> Path:
    """Return the file that holds the signature of `path`."""
    return Path(f"{os.fspath(path)}.sig")


def sign(path: _Path, key: _Path) -> Path:
    """Sign a file with a private key, and return the file of the signature; an earlier one is replaced.

    A key with a passphrase is asked for, or taken from `ssh-agent`. Raises PortingError V008 where it cannot be signed.
    """
    signature = name_signature(path)
    # it asks before it writes over one
    signature.unlink(missing_ok=True)
    done = _run_program(["-Y", "sign", "-n", NAMESPACE, "-f", os.fspath(key), os.fspath(path)], path)
    if done.returncode or not signature.exists():
        _refuse_signature(
            f"`{os.fspath(path)}` could not be signed", done.stderr, "name a private key, as `~/.ssh/id_ed25519`"
        )
    return signature


def check_signature(path: _Path, allowed_signers: _Path) -> Signer:
    """Return who signed a file, who is one of `allowed_signers`, a file in the format of `ssh-keygen`.

    Raises PortingError V008 for a file without a signature, or whose signature is another's or of another content.
    """
    signature = name_signature(path)
    if not signature.exists():
        remedy = f"let its maker sign it: `ssh-keygen -Y sign -n {NAMESPACE} -f KEY {os.fspath(path)}`"
        _refuse_signature(f"`{os.fspath(path)}` is not signed", f"there is no `{signature}`", remedy)
    who = ["-f", os.fspath(allowed_signers), "-s", os.fspath(signature)]
    found = _run_program(["-Y", "find-principals", *who], path)
    names = found.stdout.split()
    remedy = "ask its maker for the file, its signature and the line of `allowed_signers`"
    if found.returncode or not names:
        _refuse_signature(f"the signature of `{os.fspath(path)}` is of nobody who is allowed", found.stderr, remedy)
    with open(path, "rb") as content:
        done = _run_program(["-Y", "verify", "-n", NAMESPACE, "-I", names[0], *who], path, content)
    if done.returncode:
        fault = f"the signature of `{os.fspath(path)}` is not one of its content"
        _refuse_signature(fault, done.stdout + done.stderr, remedy)
    return Signer(names[0], done.stdout.strip())


def _run_program(words: Sequence[str], path: _Path, content: Optional[BinaryIO] = None) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(
            [_PROGRAM, *words], stdin=content, capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError:
        remedy = "install OpenSSH 8.2 or later, whose `ssh-keygen` computes signatures"
        _refuse_signature(
            f"the signature of `{os.fspath(path)}` cannot be computed", f"there is no `{_PROGRAM}`", remedy
        )


def _refuse_signature(fault: str, said: str, remedy: str) -> NoReturn:
    notes = [line for line in said.strip().splitlines() if line][:3]
    raise PortingError.of("V008", message=fault, notes=tuple(notes), help=remedy)
