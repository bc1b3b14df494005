"""Name the tensors of a compiled model, for `getTensorNames()`, anchors and the rendered graph."""

from __future__ import annotations

from typing import Counter, Dict, Mapping, Tuple

import torch

from ...capture import StepGraph, find_losses
from ...engines.calls.step_anchors import StepValue
from ...engines.recompute.values_for_backward import trained_parameters
from .._scopes.executed_operators import executed_operators, result_nodes
from .operator_types import operator_types

__all__ = ["name_step_values", "name_tensors"]


def name_tensors(graph: StepGraph) -> Dict[str, torch.fx.Node]:
    """Name what enters the graph and the results of its operators.

    Parameters and buffers are called by their module path, inputs `input`, `input/1`, ..., losses `loss`, `loss/1`, ...
    with the final one first, and other results by name scope, type and number of the result, as `encoder/MatMul:0`.
    """
    final, demoted = find_losses(graph.graph)
    losses = [*final, *demoted]
    named = [
        (info.kind if info.kind in ("input", "constant") else info.name, node)
        for info, node in zip(graph.entering, graph.placeholders)
    ]
    named += [("loss", loss) for loss in losses]
    for node in executed_operators(graph.graph):
        if node not in losses:
            kind = f"{node.meta.get('name_scope', '')}{operator_types(node)[-1]}"
            named += [(f"{kind}:{number}", result) for number, result in enumerate(result_nodes(node))]
    found: Dict[str, torch.fx.Node] = {}
    counts: Counter[str] = Counter()
    for name, node in named:
        if isinstance(node.meta.get("val"), torch.Tensor):
            # PopART numbers equal names from the second on
            found[f"{name}/{counts[name]}" if counts[name] else name] = node
            counts[name] += 1
    return found


def name_step_values(
    graph: StepGraph, *, slots: Mapping[str, Tuple[str, ...]], adapts_loss_scaling: bool
) -> Dict[str, StepValue]:
    """Name what only the optimizer step has; `slots` lists the optimizer's state tensors of each parameter."""
    found: Dict[str, StepValue] = {}
    trained = trained_parameters(graph)
    known = set(trained)
    for name in trained:
        found[f"Gradient___{name}"] = StepValue("gradient", name)
        found[f"UpdatedVar___{name}"] = StepValue("weight", name)
    for name, own in slots.items():
        if name in known:
            found.update({f"{slot}___{name}": StepValue("slot", name, slot) for slot in own})
    if adapts_loss_scaling:
        found["finalLossScale"] = StepValue("loss_scaling")
        found["lossScaleUpdateFactor"] = StepValue("loss_scaling_factor")
    return found
