"""Convert the forward graph to an ONNX model by torch's own exporter; this needs the extra `onnx`."""

from __future__ import annotations

import io
import logging
import re
import warnings
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Tuple

import torch
from torch import nn

from ...capture import StepGraph
from ...capture.graph_flow import is_random
from ...diagnostics import ExecutableError, Place, require_extra
from ...engines.recompute.value_units import statistics_written_by
from ...engines.replay.graph_function import GraphFunction
from ...executables.exported_step import ExportedStep

__all__ = ["as_onnx"]


def as_onnx(step: ExportedStep) -> bytes:
    """Return the forward pass of `step` as a serialized ONNX model, weights included.

    The results of `forward` are the model's outputs, in training with the loss; writes to buffers, such as those of
    BatchNorm in training, and the backward pass are no part of it. Raises PortingError X001 without the extra, and
    ExecutableError E027 for an operator that ONNX does not have, or a step without its weights.
    """
    for name in ("onnx", "onnxscript"):
        require_extra(name, extra="onnx", message=f"ONNX files need onnx and onnxscript; not installed: {name}")
    module = _Forward(step)
    named = step.graph.inputs, step.graph.outputs
    names = [[re.sub(r"\W", "_", info.name) or "value" for info in infos] for infos in named]
    try:
        with _silence_exporter():
            program: Any = torch.onnx.export(
                module,
                tuple(tensor.clone() for tensor in step.inputs),
                dynamo=True,
                verbose=False,
                external_data=False,
                input_names=names[0],
                output_names=names[1],
            )
    except Exception as error:
        raise _make_unexportable_error(step.graph, error) from error
    content = io.BytesIO()
    program.save(content)
    return content.getvalue()


class _Forward(nn.Module):
    """The captured graph as a module of its inputs; weights and constants are its buffers."""

    def __init__(self, step: ExportedStep) -> None:
        super().__init__()
        graph = step.graph
        for described in graph.operators:
            # torch's exporter would write these down as they are in inference: another computation
            name, place = described.operator, described.place
            if statistics_written_by(described.node):
                raise _make_form_error(name, place, "in training it takes the statistics of the batch")
            if is_random(described.node):
                raise _make_form_error(name, place, "it draws random numbers")
        self._function = GraphFunction(graph.graph).call
        self._names: List[str] = []
        missing = next((info.name for info in graph.parameters if info.name not in step.values), None)
        if missing is not None:
            raise ExecutableError.of(
                "E027",
                message=f"the step has no weights, such as `{missing}`, which an ONNX model holds",
                help="export it without `--no-weights`",
            )
        state = [step.values[info.name] for info in (*graph.parameters, *graph.buffers)]
        for number, value in enumerate([*state, *graph.constant_values]):
            self._names.append(f"state_{number}")
            self.register_buffer(self._names[-1], value.clone())
        self._num_state = len(state)
        self._num_outputs = len(graph.outputs)

    def forward(self, *inputs: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """Run the graph on copies of the tensors that it writes to."""
        state = [getattr(self, name).clone() for name in self._names]
        own = [tensor.clone() for tensor in inputs]
        return tuple(self._function(*state[: self._num_state], *own, *state[self._num_state :]))[: self._num_outputs]


def _make_unexportable_error(graph: StepGraph, error: Exception) -> ExecutableError:
    """Make an error about the operator that torch's exporter cannot convert, with its place."""
    texts: List[str] = []
    cause: Optional[BaseException] = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(texts))
    named = [name for _, name in re.findall(r"\b(aten|prims|poptorch)(?:\.|::)(\w+)", text)]
    # it may name a part of an operator: `prims.bessel_i0e` for `aten.special_i0e`
    for shorten in (str, lambda name: name.rpartition("_")[2]):
        for name in named:
            for described in graph.operators:
                if [*map(shorten, described.operator.split(".")[1:2])] == [shorten(name)]:
                    return _make_form_error(described.operator, described.place, "torch's exporter has no form for it")
    reasons = [line.strip() for line in text.splitlines() if line.startswith(("No ONNX", "Error when", "RuntimeError"))]
    what = named[0] if named else "a part of the graph"
    return _make_form_error(what, None, (reasons or [type(error).__name__])[0][:200])


def _make_form_error(name: str, place: Optional[Place], why: str) -> ExecutableError:
    return ExecutableError.of(
        "E027",
        message=f"`{name}` has no form in ONNX",
        place=place,
        label=why,
        notes=() if place is not None else why,
        help=(
            "if that is a matter of training, export the model as it is in use: `--mode inference`",
            "or dump the graph as text, json or dot, which hold everything",
        ),
    )


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Suppress torch's exporter's warnings that do not concern the user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)
