"""Programs of a step without a compiler."""

from __future__ import annotations

from typing import Mapping, Set

import torch

from porting.engines.compiled.programs import Program, Programs, Runner


def interpret_programs(programs: Programs) -> Mapping[str, Runner]:
    """Return runners that interpret the graphs."""
    return {role: _interpret(program) for role, program in programs.by_role.items()}


def _interpret(program: Program) -> Runner:
    return lambda tensors: list(program.module(*tensors))


def written_names(program: Program) -> Set[str]:
    """Run a program on random numbers; return the names of the arguments that it has written to."""
    given = [torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype) for spec in program.arguments]
    for tensor in given:
        tensor.uniform_(0.5, 1.5)
    copies = [tensor.clone() for tensor in given]
    program.module(*given)
    return {spec.name for spec, *pair in zip(program.arguments, given, copies) if not torch.equal(*pair)}
