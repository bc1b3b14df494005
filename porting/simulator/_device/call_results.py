"""`hand_back`: what a call returns, and what it leaves in the caller's own tensors."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ...capture import StepGraph
from ...capture.device_tensor import DeviceTensor
from ...structure import rebuild
from ..errors import createPoptorchError

__all__ = ["hand_back"]


def hand_back(graph: StepGraph, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Any:
    """Update the caller's `inputs`, and return the outputs nested as `forward` returned them."""
    # the outputs, then the inputs that the graph wrote into; what is no tensor of the device stays as it was traced
    outputs, written = results[: len(graph.outputs)], results[len(graph.outputs) :]
    for index, value in zip(sorted(graph.mutated_inputs), written):
        # PopTorch updates what it gave the device, which is a copy if the input was not contiguous.
        if inputs[index].is_contiguous():
            with torch.no_grad():
                inputs[index].copy_(value)
    for tensor in outputs:
        tensor.backward = _refuse_backward  # type: ignore[method-assign]
    return rebuild(graph.output_structure, outputs, replaces=lambda leaf: isinstance(leaf, DeviceTensor))


def _refuse_backward(*_args: Any, **_kwargs: Any) -> None:
    raise createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
