"""Will a training step fit into an IPU: asked of the simulator's capture, so that hardware is not the first to tell."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from ..diagnostics import PortingError, Severity, caller_place
from .parts import Parts

__all__ = ["check_memory"]


def check_memory(parts: Parts, executor: Any) -> None:
    """Warn (M001) of a step that the simulator has compiled and that would not fit into an IPU.

    With `PortOptions(memory="error")` that is raised as a PortingError, with "ignore" nothing is looked at.
    """
    compiled = getattr(executor, "_compiled", None)
    if not parts.backend.is_simulator or compiled is None or parts.options.memory == "ignore":
        return
    # on a machine with IPUs there is no capture, nor the torch that it wants
    look = importlib.import_module("porting.planning.compiled_look")
    finding = look.note_memory(compiled.graph, parts.options, parts.optimizer)
    if finding is None:
        return
    finding = dataclasses.replace(
        finding,
        place=caller_place(),
        label="the step is compiled here",
        help=(
            *finding.help[:1],
            "see all that would help: `print(porting.memory_report(ported, batch))`",
            'if no IPU is meant to run it: `PortOptions(memory="ignore")`',
        ),
    )
    if parts.options.memory == "error":
        raise PortingError(dataclasses.replace(finding, severity=Severity.ERROR))
    parts.say(finding)
