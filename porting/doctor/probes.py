"""Define a probe's result, what was expected and what was found, and ask other programs for their answers.

All probes use it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Sequence

from porting.diagnostics import Finding, Severity

__all__ = ["Answer", "Probe", "ask_program"]

_MOST_CHARACTERS = 200_000


@dataclass(frozen=True)
class Probe:
    """The result of one probe: what a port needs, what is there, and a finding where they differ."""

    name: str
    expected: str
    found: str
    finding: Optional[Finding] = None

    @property
    def state(self) -> str:
        """`ok`, or the severity of the finding."""
        return "ok" if self.finding is None else Severity(self.finding.severity).value

    def to_dict(self) -> Dict[str, Any]:
        """Make a dictionary of plain values, ready for JSON."""
        return {
            "name": self.name,
            "state": self.state,
            "expected": self.expected,
            "found": self.found,
            "finding": None if self.finding is None else self.finding.to_dict(),
        }


@dataclass(frozen=True)
class Answer:
    """The answer of a program: its text, and the fault if the text cannot be trusted; empty otherwise."""

    text: str
    fault: str = ""


def ask_program(
    words: Sequence[str], *, timeout_seconds: float, environment: Optional[Mapping[str, str]] = None
) -> Answer:
    """Run a program and return its output; one that exceeds its time is killed, with all that it started."""
    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            start_new_session=sys.platform != "win32",
        )
    except OSError as error:
        return Answer("", f"cannot be started: {error.strerror or error}")
    try:
        output, _nothing = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        _end_all(process)
        return Answer("", f"gave no answer in {timeout_seconds:g} s")
    text = output[:_MOST_CHARACTERS].decode("utf-8", "replace").strip()
    return Answer(text, _name_end(process.returncode))


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children, which may hold its output open."""
    if sys.platform != "win32":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.kill()
    try:
        process.communicate(timeout=1)
    except subprocess.TimeoutExpired:  # stuck in a driver: it cannot be killed
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _name_end(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}" if status else ""
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
