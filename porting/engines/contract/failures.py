"""An engine that cannot do a step says why, and the user gets a finding: replay does it instead.

Engines of other packages may raise errors of their own, which are told by their attributes.
"""

from __future__ import annotations

from typing import Sequence

from ...diagnostics import Finding, OptionError
from .. import REINSTALL
from ..calls.executable import BuildRequest, Choice

__all__ = [
    "EXCHANGES",
    "CompileFailure",
    "NotCompilable",
    "failure_finding",
    "failure_reason",
    "is_lasting",
    "missing_finding",
    "parity_finding",
    "replay_finding",
    "why_not_tuned",
]

EXCHANGES = "gradients are exchanged between processes, which have to round alike"
"""Why a step of several processes is replayed."""

_IS_WATCHED = "anchors look at single training steps, which only the replay engine can show"


class NotCompilable(Exception):  # noqa: N818 - a property of the step, of which `reason` tells the user
    """The step needs the replay engine; `reason` says why, as a clause without a full stop."""

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


class CompileFailure(Exception):  # noqa: N818 - an outcome that callers handle, named as the findings name it
    """A program could not be compiled.

    `kind` is "error" (the compiler refused it), "timeout", "memory", "space" (the disk is full), "crash" (its process
    died), "torch" (it lacks what is needed) or "no-compiler"; `reason` is one sentence without a full stop, `log` the
    end of what the compiler wrote.
    """

    def __init__(self, kind: str, reason: str, *, log: str = "") -> None:
        """Keep the facts."""
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.log = log[-8000:]


def why_not_tuned(request: BuildRequest) -> str:
    """Return why a step is replayed as it is, whatever engine is asked for; empty where there is a choice."""
    if request.observer is not None:
        return _IS_WATCHED
    return EXCHANGES if request.plan.exchange is not None else ""


def failure_finding(choice: Choice, error: Exception) -> Finding:
    """Return the finding about an `error` of making a choice.

    E003 is for a step that needs replay, E013 for a torch that lacks a part, E015 for an engine that is not there, E002
    for time that was up, E001 for all else.
    """
    if isinstance(error, OptionError):
        return missing_finding(str(error.finding.message), help=error.finding.help)
    reason = failure_reason(error)
    # Told by their attributes: an engine of another package may bring its own classes.
    if getattr(error, "reason", "") and not hasattr(error, "kind"):
        return replay_finding(reason)
    if getattr(error, "kind", "") == "torch":
        return Finding(
            "E013",
            message=f"the engine `{choice.label}` compiles nothing: {reason}",
            notes="replay runs the step, with the same results",
            help="use a torch that was tested: `porting doctor` names them",
        )
    log = str(getattr(error, "log", "")).strip().splitlines()[-3:]
    return Finding(
        "E002" if getattr(error, "kind", "") == "timeout" else "E001",
        message=f"the engine `{choice.label}` could not compile the step: {reason}",
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


def missing_finding(reason: str, *, help: Sequence[str] = (REINSTALL,)) -> Finding:
    """Return the finding E015 about a step that is replayed because an engine is not installed."""
    return Finding("E015", message=f"the step is replayed: {reason}", help=help)


def parity_finding(choice: Choice, difference: str) -> Finding:
    """Return the finding E007 about a choice that differs from replay in what `difference` says."""
    return Finding(
        "E007",
        message=f"the candidate `{choice.label}` does not compute what replay computes",
        notes=difference,
        help="nothing need be done: it is not used; please report the model that shows it",
    )
