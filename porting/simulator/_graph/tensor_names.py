"""Name the tensors of a compiled model, for `getTensorNames()`, anchors and the rendered graph."""

from __future__ import annotations

from typing import Dict, Iterator, List, Set, Tuple

import torch

from ...capture import StepGraph, find_losses
from ...engines.calls.step_anchors import StepValue
from ...engines.recompute.values_for_backward import trained_parameters
from .._scopes.executed_operators import executed_operators, result_nodes
from .operator_types import operator_types

__all__ = ["forward_names", "step_names"]


def forward_names(graph: StepGraph) -> Dict[str, torch.fx.Node]:
    """Name what enters the graph and the results of its operators.

    Parameters and buffers are called by their module path, inputs `input`, `input/1`, ..., losses `loss`, `loss/1`, ...
    with the final one first, and other results by name scope, type and number of the result, as `encoder/MatMul:0`.
    """
    names = _UniqueNames()
    infos = graph.entering
    for info, node in zip(infos, graph.placeholders):
        names.add(info.kind if info.kind in ("input", "constant") else info.name, node)
    final, demoted = find_losses(graph.graph)
    losses = [*final, *demoted]
    for loss in losses:
        names.add("loss", loss)
    for node in executed_operators(graph.graph):
        if node not in losses:
            for number, result in enumerate(result_nodes(node)):
                names.add(f"{node.meta.get('name_scope', '')}{operator_types(node)[-1]}:{number}", result)
    return names.nodes


class _UniqueNames:
    """Names of nodes; the second of a name gets `/1`, the third `/2`."""

    def __init__(self) -> None:
        self.nodes: Dict[str, torch.fx.Node] = {}
        self._counts: Dict[str, int] = {}

    def add(self, name: str, node: torch.fx.Node) -> None:
        """Name a node, unless it is no tensor."""
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        self.nodes[f"{name}/{count}" if count else name] = node


def step_names(
    graph: StepGraph, *, slots: Dict[str, Tuple[str, ...]], adapts_loss_scaling: bool
) -> Dict[str, StepValue]:
    """Name what only the optimizer step has; `slots` lists the optimizer's state tensors of each parameter."""
    return dict(_step_values(trained_parameters(graph), slots, adapts_loss_scaling))


def _step_values(
    trained: List[str], slots: Dict[str, Tuple[str, ...]], adapts_loss_scaling: bool
) -> Iterator[Tuple[str, StepValue]]:
    known: Set[str] = set(trained)
    for name in trained:
        yield f"Gradient___{name}", StepValue("gradient", name)
        yield f"UpdatedVar___{name}", StepValue("weight", name)
    for name, own in slots.items():
        if name in known:
            for slot in own:
                yield f"{slot}___{name}", StepValue("slot", name, slot)
    if adapts_loss_scaling:
        yield "finalLossScale", StepValue("loss_scaling")
        yield "lossScaleUpdateFactor", StepValue("loss_scaling_factor")
