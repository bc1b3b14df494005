"""Capture a training step as `to_ipu` does and write it to a file, without compiling or training: `export`.

`porting export` uses it.
"""

from __future__ import annotations

import os
from typing import Any, Optional

import torch
from torch import nn

from ..adapters.labels import split_labels
from ..adapters.loss_terms import Losses
from ..api import to_ipu
from ..api.batch import BatchSignature
from ..capture.dtypes import device_dtype
from ..diagnostics import OptionError
from ..engines.calls.executable import BuildRequest
from ..engines.recompute.values_for_backward import keep_values_for_backward
from ..executables.exported_step import BatchRecord, ExportedStep
from ..executables.step_file import Path
from ..options import PortOptions
from ..structure import Structure, make_call_arguments
from ..support.atomic_files import write_atomically
from .dumps import dump_graph

__all__ = ["MODES", "TRANSLATORS", "capture", "export"]

MODES = ("training", "inference")
"""What a step can be exported for."""

TRANSLATORS = ("capture", "onnx")
"""What `export` can write."""


def export(
    model: nn.Module,
    loss: Optional[Losses],
    batch: Structure,
    path: Path,
    *,
    optimizer: Optional[torch.optim.Optimizer] = None,
    options: Optional[PortOptions] = None,
    mode: str = "training",
    weights: bool = True,
    translator: str = "capture",
    **settings: Any,
) -> ExportedStep:
    """Capture the step that `to_ipu(model, loss, optimizer=..., options=...)` would compile for `batch`, as a file.

    `batch` is a combined batch: the arguments of one call, with micro-batch x accumulation x replicas x iterations
    samples. Nothing is computed, compiled or trained; lazy modules get their parameters. As with `to_ipu`, a precision
    in which weights are halves converts the model's. Without `weights` the file holds their shapes only.
    `translator` chooses the content: "capture" the step, for `compile_step` and `porting compile`; "onnx" its forward
    pass for other tools (extra `onnx`). Another is a NotImplementedError. `settings` are others of `to_ipu`.

    Raises the errors of `to_ipu` and of compiling, and ExecutableError E027 for a step that no file can hold.

    >>> import tempfile
    >>> batch = torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(export(nn.Linear(4, 2), nn.CrossEntropyLoss(), batch, f"{folder}/linear.step").batch)
    batch 8
    """
    if translator not in TRANSLATORS:
        raise NotImplementedError(f"Unsupported translator: {translator} (there are {', '.join(TRANSLATORS)})")
    step = capture(model, loss, batch, optimizer=optimizer, options=options, mode=mode, **settings)
    if translator == "onnx":
        write_atomically(os.fspath(path), dump_graph(step, "onnx"))
    else:
        step.save(path, weights=weights)
    return step


def capture(
    model: nn.Module,
    loss: Optional[Losses],
    batch: Structure,
    *,
    optimizer: Optional[torch.optim.Optimizer] = None,
    options: Optional[PortOptions] = None,
    mode: str = "training",
    target: str = "",
    **settings: Any,
) -> ExportedStep:
    """Capture the step as `export` does and keep it in memory; `target` names its source."""
    if mode not in MODES:
        raise OptionError.at_caller("P002", message=f"`mode` is {mode!r}", help=f"use one of {MODES}")
    options = options if options is not None else PortOptions()
    # the executable that is made as well is the literal graph, which costs nothing and is not kept
    plain = options.replace(engine="replay", computation_order="none", cache_dir=None)
    ported = to_ipu(model, loss, optimizer=optimizer, options=plain, device="sim", **settings)
    args, kwargs = make_call_arguments(batch)
    try:
        if mode == "inference":
            # what only the loss takes: a deployed model gives its output alone
            port = ported.port
            if port.loss is not None:
                args, kwargs, _labels = split_labels(port.model.forward, args, kwargs, label=port.label)
        runner: Any = ported.inference() if mode == "inference" else ported
        runner.compile(*args, **kwargs)
        session = runner.device_executor.device_session
        tensors = session.parser.bind(args, kwargs).list_tensors()
        inputs = tuple(tensor.detach().to(device_dtype(tensor.dtype)).contiguous() for tensor in tensors)
        return _take_step(session, options, BatchSignature(args, kwargs), target=target, inputs=inputs)
    finally:
        ported.destroy()


def _take_step(session: Any, options: PortOptions, signature: BatchSignature, **facts: Any) -> ExportedStep:
    """Make the exported step from an executor's session; `facts` are further fields."""
    compiled, optimizer = session.require_compiled(), session.optimizer if session.is_training else None
    plan, state = compiled.plan, compiled.state
    request = BuildRequest(
        plan=plan,
        groups=tuple(optimizer.groups) if optimizer is not None else (),
        group_names=tuple(map(tuple, optimizer.group_names)) if optimizer is not None else (),
        replica_groups=dict(state.groups),
    )
    record = BatchRecord(
        micro=max(1, signature.rows // plan.num_slices),
        accumulation=plan.accumulation,
        replicas=plan.replicas,
        iterations=plan.iterations,
        rows=signature.rows,
        arguments=str(signature),
    )
    return ExportedStep(
        keep_values_for_backward(compiled.graph),
        request,
        record,
        options.computation_order,
        options.precision,
        model=type(session.model).__name__,
        values={name: state.read_value(name).detach().clone() for name in state.names},
        **facts,
    )
