"""Shows the compiled graph of an executor: names of tensors, anchored tensors, the graph as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Tuple

import torch

from .._optimizer.device_optimizer import parameter_names
from .._options_impl import require
from .anchors import OptimizerNames, tensor_names
from .graph_ir import graph_ir
from .operator_types import update_types

if TYPE_CHECKING:
    from .._poplar_executor import PoplarExecutor

__all__ = ["anchored_tensor", "optimizer_names", "popart_ir", "tensor_names_of"]


def optimizer_names(executor: PoplarExecutor) -> OptimizerNames:
    """Return the names of the tensors of an executor's optimizer; there are none in inference."""
    if not executor._training:
        return OptimizerNames()
    slots, hyper_parameters = executor._device_optimizer.tensor_names(parameter_names(executor._user_model))
    return OptimizerNames(slots, hyper_parameters)


def tensor_names_of(executor: PoplarExecutor) -> List[str]:
    """Return the names of the tensors of a compiled executor; AssertionError for any other."""
    compiled = executor._compiled
    require(compiled is not None, "Model must be compiled before calling getTensorNames")
    assert compiled is not None
    return tensor_names(compiled.graph, compiled.plan, optimizer_names(executor))


def anchored_tensor(executor: PoplarExecutor, short_name: str) -> torch.Tensor:
    """Return an anchored tensor of the last call; AssertionError if there is none of this name."""
    require(short_name in executor._anchor_memory, f"No tensor with name {short_name} found.")
    return executor._anchor_memory[short_name]


def popart_ir(executor: PoplarExecutor) -> str:
    """Return the graph of a compiled executor as JSON; `poptorch.Error` for any other."""
    compiled = executor._require_compiled()
    types: Tuple[str, ...] = ()
    if executor._training:
        settings = executor._device_optimizer.settings
        kind = settings["optimizer_type"].name
        has_momentum = any("Accl1" in slots for slots in compiled.state.slots.values())
        types = update_types(kind, has_momentum=has_momentum)
    return graph_ir(compiled.graph, update_types=types)
