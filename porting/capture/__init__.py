"""One capture of the training step: model, loss and example batch become a `StepGraph`."""

from __future__ import annotations

import re

import torch

from ..diagnostics import CaptureError

MINIMUM_TORCH = (2, 6)
if tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) < MINIMUM_TORCH:
    raise CaptureError.of(
        "C009",
        message=f"capturing a model needs torch {MINIMUM_TORCH[0]}.{MINIMUM_TORCH[1]}, this is {torch.__version__}",
        help=(
            "to train on IPUs pass `device='ipu'`: PopTorch captures by itself, and every torch from 2.0 on will do",
            f"what needs a capture (simulator, memory, export, graph) runs without IPUs, wherever torch is "
            f"{MINIMUM_TORCH[0]}.{MINIMUM_TORCH[1]} or later",
        ),
    )


from .losses import find_losses, single_final_loss  # noqa: E402 - only a new enough torch can import these
from .step_graph import OperatorNode, StepGraph, TensorInfo  # noqa: E402
from .tracing import capture_step  # noqa: E402

__all__ = ["OperatorNode", "StepGraph", "TensorInfo", "capture_step", "find_losses", "single_final_loss"]
