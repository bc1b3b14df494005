"""Programs of a step without a compiler."""

from __future__ import annotations

from typing import Mapping

from porting.engines.compiled.programs import Program, Programs, Runner


def interpret_programs(programs: Programs) -> Mapping[str, Runner]:
    """Return runners that interpret the graphs."""
    return {role: _interpret(program) for role, program in programs.by_role.items()}


def _interpret(program: Program) -> Runner:
    return lambda tensors: list(program.module(*tensors))
