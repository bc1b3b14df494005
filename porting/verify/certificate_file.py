"""Write certificates as plain data with a version and a checksum, and read them.

A file whose checksum is not that of what it says was cut off or damaged, and is refused. Certificates are written and
read here alone. What contradicts itself is refused, too: a verdict that its own kinds and curves do not support.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple, Type, TypeVar, Union

from porting.diagnostics import PortingError, suggest_file
from porting.support import plain_data
from porting.support.atomic_files import write_atomically
from porting.support.plain_data import WrongDataError, read_json

__all__ = ["find_contradiction", "match_losses", "read_file", "read_plain", "write_file"]

FORM = "porting certificate"

_OTHER_KIND = "it is no certificate of `porting verify`"

_Data = TypeVar("_Data")
_Path = Union[str, "os.PathLike[str]"]


def read_plain(kind: Type[_Data], plain: object) -> _Data:
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
        _refuse_file(f"`{name}` cannot be read", error.strerror or str(error), remedy=suggest_file(path))
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


def _check_version(name: str, found: object, own: int) -> None:
    if type(found) is int and found == own:
        return
    is_newer = type(found) is int and found > own
    said = found if type(found) is int else "none that is a number"
    note = f"the version of its form is {said}, and this porting reads {own}"
    remedy = "update porting: `pip install -U ipu-porting`" if is_newer else "make it again: `porting verify`"
    raise PortingError.of("V004", message=f"`{name}` is of another version", notes=note, help=remedy)


def _refuse_file(fault: str, note: str, *, remedy: str = "") -> NoReturn:
    again = "make it again with `porting verify PROGRAM:FUNCTION --out FILE`"
    raise PortingError.of("V004", message=fault, notes=note, help=remedy or again) from None


def _compute_checksum(plain: object) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# -- contradictions ----------------------------------------------------------------------------------------------------

_LOSSES = ("loss", "loss curve")
_RELATIVE = 1e-6
# the smallest fault that is planted, and how many times as large the next one may be
_SMALLEST, _STEP = 1e-6, 4.0


def find_contradiction(certificate: Any) -> str:
    """Say what in a `Certificate` contradicts the rest of it; nothing if all of it agrees.

    Raises KeyError, TypeError or ValueError where its record has another form.
    """
    return next(_iter_contradictions(certificate), "")


def match_losses(plain: Sequence[float], ported: Sequence[float], factor: float = 1.0) -> Optional[Tuple[float, float]]:
    """Return the mean losses of a step that are compared, the port's times `factor`; None where one side has none.

    A port that returns the losses of its last micro-batches alone is compared with those.

    >>> match_losses([4.0, 1.0, 3.0], [1.0, 3.0])
    (2.0, 2.0)
    """
    if not plain or not ported:
        return None
    own = plain[-len(ported) :] if len(ported) < len(plain) else plain
    return sum(own) / len(own), factor * sum(ported) / len(ported)


def _iter_contradictions(certificate: Any) -> Iterator[str]:
    for kind in certificate.kinds:
        if _sum_up(kind) != kind.verdict.value:
            yield f"`{kind.kind}` is {kind.verdict.value}, and its figures say {_sum_up(kind)}"
    failed = [kind.kind for kind in certificate.kinds if kind.verdict.value == "FAIL"]
    loses = certificate.precision is not None and not certificate.precision.explains
    verdict = certificate.verdict.value
    if (verdict == "FAIL") != bool(failed or loses):
        found = f"`{failed[0]}` is FAIL" if failed else "half precision loses what is trained with"
        yield f"the verdict is {verdict}, and {found if failed or loses else 'nothing in it is FAIL'}"
    record = certificate.record
    if (verdict == "CHAOTIC") and record.get("chaos") is None:
        yield "the verdict is CHAOTIC, and no step was"
    if verdict == "PASS" and certificate.num_steps < certificate.num_steps_asked:
        yield f"the verdict is PASS after {certificate.num_steps} of {certificate.num_steps_asked} steps"
    yield from _iter_wrong_counts(certificate)
    if record:
        yield from _iter_wrong_curves(certificate, record)


def _iter_wrong_counts(certificate: Any) -> Iterator[str]:
    """Compare what a certificate counts: steps, kinds, and how small a fault it would have told."""
    steps, asked = certificate.num_steps, certificate.num_steps_asked
    kept = max(map(int, certificate.record["plain_losses"]), default=0) if certificate.record else 0
    if steps > asked:
        yield f"{steps} steps were compared of {asked}"
    if certificate.record and steps > kept:
        yield f"{steps} steps were compared, and the losses of {kept} were kept"
    if any(int(said) != steps for said in re.findall(r"(\d+) steps long", certificate.reason)):
        yield f"{steps} steps were compared, and the reason tells of others"
    names = [kind.kind for kind in certificate.kinds]
    if len(set(names)) < len(names):
        yield "a kind stands twice in its table"
    compared = [kind.kind for kind in certificate.kinds if kind.num_compared]
    if certificate.verdict.value == "PASS" and not compared:
        yield "the verdict is PASS, and nothing was compared"
    told = certificate.sensitivity
    if told is not None and (told.kind not in compared or not _are_neighbours(told.missed, told.caught)):
        yield f"its first line tells a smallest fault of `{told.kind}` that was not planted there"


def _are_neighbours(missed: Optional[float], caught: Optional[float]) -> bool:
    """Tell whether of two faults one was planted after the other; None is beyond the smallest, or the largest."""
    if missed is None or caught is None:
        return caught is None or caught <= _SMALLEST * (1 + _RELATIVE)
    return missed < caught <= _STEP * missed


def _sum_up(kind: Any) -> str:
    if not kind.num_compared:
        return "NOT COMPARED"
    is_outside = any(one is not None and not one.is_inside for one in (kind.worst, kind.first))
    return "FAIL" if is_outside else "PASS"


def _iter_wrong_curves(certificate: Any, record: Mapping[str, Any]) -> Iterator[str]:
    """Compare the curves with the losses that were kept, and the kinds with how far these are apart."""
    sides: List[Dict[int, List[float]]] = [
        {int(step): list(losses) for step, losses in record[name].items()} for name in ("plain_losses", "losses")
    ]
    curves = certificate.curves.plain, certificate.curves.ported
    for name, curve, losses in zip(("plain PyTorch", "the port"), curves, sides):
        if len(curve) < certificate.num_steps:
            yield f"the curve of {name} has {len(curve)} of {certificate.num_steps} steps"
        for step, value in enumerate(curve, 1):
            own = losses.get(step)
            mean = sum(own) / len(own) if own else value
            if not _are_close(value, mean):
                yield f"the curve of {name} is {value:g} in step {step}, and the loss that was kept {mean:g}"
    bands = {(kind, int(step)): float(band) for kind, step, _name, band in record["bands"] if kind in _LOSSES}
    kinds = [kind for kind in certificate.kinds if kind.kind in _LOSSES]
    told = {one.step: one for kind in kinds for one in (kind.worst, kind.first) if one is not None}
    passed = {kind.kind for kind in kinds if kind.verdict.value == "PASS"}
    for step in range(1, certificate.num_steps + 1):
        ours, theirs = (side.get(step, []) for side in sides)
        pair = match_losses(ours, theirs, float(record["loss_factor"]))
        if pair is None or not math.isfinite(pair[0] - pair[1]):
            continue
        apart, kind = abs(pair[0] - pair[1]), "loss" if step == 1 else "loss curve"
        if step in told and math.isfinite(told[step].distance) and not _are_close(told[step].distance, apart):
            yield f"`{kind}` is {told[step].distance:g} apart in step {step}, and the losses that were kept {apart:g}"
        band = bands.get((kind, step))
        if kind in passed and band is not None and apart > band * (1 + _RELATIVE):
            yield f"`{kind}` is PASS, and in step {step} the losses are {apart:g} apart, their band being {band:g}"


def _are_close(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=_RELATIVE)
