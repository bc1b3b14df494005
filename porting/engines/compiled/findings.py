"""Findings about engines that could not do a step: they never say more than that replay does it instead."""

from __future__ import annotations

from ...diagnostics import Finding
from ..calls.executable import Variant

__all__ = ["failure_finding", "failure_reason", "is_lasting", "parity_finding", "replay_finding"]


def failure_finding(variant: Variant, error: Exception) -> Finding:
    """Return the finding about an `error` of making a variant.

    E003 is for a step that needs replay, E013 for a torch that lacks a part, E002 for time that was up, E001 for all
    else.
    """
    reason = failure_reason(error)
    # Told by their attributes: an engine of another package may bring its own classes.
    if getattr(error, "reason", "") and not hasattr(error, "kind"):
        return replay_finding(reason)
    if getattr(error, "kind", "") == "torch":
        return Finding(
            "E013",
            message=f"the engine `{variant.label}` compiles nothing: {reason}",
            notes="replay runs the step, with the same results",
            help="use a torch that was tested: `porting doctor` names them",
        )
    log = str(getattr(error, "log", "")).strip().splitlines()[-3:]
    return Finding(
        "E002" if getattr(error, "kind", "") == "timeout" else "E001",
        message=f"the engine `{variant.label}` could not compile the step: {reason}",
        notes=("replay runs the step, with the same results", *(f"the compiler said: {line[:200]}" for line in log)),
        help="nothing need be done; `porting cache why` tells more, `porting cache clear --failed` lets one try again",
    )


def failure_reason(error: BaseException) -> str:
    """Return why something failed, in one line."""
    reason = str(getattr(error, "reason", ""))
    lines = (reason or str(error)).strip().splitlines()
    if reason and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def is_lasting(error: BaseException) -> bool:
    """Tell whether the next attempt would fail the same way: not where this one lacked memory or room on the disk.

    >>> is_lasting(ValueError("no such operator")), is_lasting(MemoryError())
    (True, False)
    """
    if isinstance(error, (MemoryError, OSError)) or getattr(error, "kind", "") in ("memory", "space"):
        return False
    return "allocate memory" not in str(error)


def replay_finding(reason: str) -> Finding:
    """Return the finding E003 about a step that needs replay."""
    return Finding("E003", message=f"the step is not compiled but replayed: {reason}")


def parity_finding(variant: Variant, difference: str) -> Finding:
    """Return the finding E007 about a variant that differs from replay in what `difference` says."""
    return Finding(
        "E007",
        message=f"the candidate `{variant.label}` does not compute what replay computes",
        notes=difference,
        help="nothing need be done: it is not used; please report the model that shows it",
    )
