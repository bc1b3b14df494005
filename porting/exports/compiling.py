"""Compile an exported step, and keep the executable where a training process finds it: `compile_step`.

`porting compile` uses it.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Union

import torch

from ..diagnostics import ExecutableError, Finding
from ..engines.contract.limits import TuningLimits
from ..engines.contract.trial import Trial
from ..engines.recompute.recomputation import order_computation
from ..executables.background import STEP
from ..executables.exported_step import ExportedStep, load_step
from ..executables.obtain import Obtained, obtain_executable
from ..options import ComputationOrder

__all__ = ["compile_in_background", "compile_step", "require_batch", "require_settings"]


def compile_step(
    step: ExportedStep,
    *,
    engine: str = "auto",
    cache_dir: Union[str, os.PathLike[str], None] = None,
    computation_order: Optional[str] = None,
    limits: Optional[TuningLimits] = None,
    report: Callable[[Finding], None] = lambda _finding: None,
) -> Obtained:
    """Make the executable of `step`, or find it, and keep it under the key that the training process will look up.

    `engine` is "auto", which measures within `limits`, or the name of one. `cache_dir` is the folder that
    training will use: `PortOptions.cache_dir`, or that of the environment. `computation_order` replaces the exported
    one; training finds the executable if it has the same. `report` gets findings as they arise.

    Raises OptionError P004 for an unknown engine, ExecutableError E026 for an unknown order. A step that cannot be
    compiled is no error: `origin` is "replay" then, and the findings have the reason.
    """
    order = ComputationOrder.of(step.computation_order if computation_order is None else computation_order)
    request = step.request
    return obtain_executable(
        order_computation(step.graph, order),
        request,
        engine=engine,
        cache_dir=cache_dir,
        make_trial=lambda: Trial(_make_weights(step), step.inputs, request.plan, request.groups, request.group_names),
        limits=limits,
        model=step.model,
        report=report,
    )


def compile_in_background(arguments: Mapping[str, Any], folder: Path) -> None:
    """Choose the executable of the step in `folder` under the settings of the training in another process."""
    torch.set_num_threads(arguments["num_threads"])
    torch.set_float32_matmul_precision(arguments["matmul_precision"])
    step = load_step(folder / STEP)
    limits = TuningLimits(seconds=arguments["seconds"], measuring_seconds=arguments["measuring_seconds"])
    compile_step(step, cache_dir=arguments["cache_dir"], limits=limits)


def require_batch(step: ExportedStep, *, path: object = None, **wanted: Optional[int]) -> None:
    """Raise ExecutableError E025 if the step was exported for another batch than is `wanted`.

    The names are those of `BatchRecord`: `micro`, `accumulation`, `replicas`, `iterations`; None is any number.
    """
    different = {name: count for name, count in wanted.items() if count not in (None, getattr(step.batch, name))}
    if not different:
        return
    counts = [f"{'batch' if name == 'micro' else name} {count}" for name, count in different.items()]
    words = f"--{' --'.join(counts)} -o {path or 'FILE'}"
    raise ExecutableError.of(
        "E025",
        message=f"the step was exported for {step.batch}, and not for {', '.join(counts)}",
        notes=f"shapes are part of the graph: {step.batch.arguments}",
        help=f"export it again: `porting export {step.target or 'PROGRAM:FUNCTION'} {words}`",
    )


def require_settings(step: ExportedStep, **wanted: Optional[str]) -> None:
    """Raise ExecutableError E025 if the step was exported for another `mode` or `precision`; None is any."""
    exported = {"mode": step.graph.mode, "precision": step.precision}
    for name, value in wanted.items():
        if value not in (None, exported[name]):
            raise ExecutableError.of(
                "E025",
                message=f"the step was exported for {name} {exported[name]}, and not for {value}",
                help=f"export it again: `porting export {step.target or 'PROGRAM:FUNCTION'} --{name} {value} ...`",
            )


def _make_weights(step: ExportedStep) -> Mapping[str, torch.Tensor]:
    """Return the values of parameters and buffers; numbers of an ordinary size for those that were left out."""
    values: Dict[str, torch.Tensor] = dict(step.values)
    generator = torch.Generator().manual_seed(0)
    for info in step.graph.parameters:
        if info.name not in values:
            spread = 1.0 / math.sqrt(max(1, math.prod(info.shape[1:])))
            drawn = torch.rand(info.shape, generator=generator) * 2 * spread
            # those of one dimension may be scales, and stay positive
            values[info.name] = (drawn - (0.0 if len(info.shape) < 2 else spread)).to(info.dtype)
    return values
