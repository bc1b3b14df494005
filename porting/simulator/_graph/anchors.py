"""Keep anchored tensors, values of a compiled model besides its outputs, which each call saves for `getAnchoredTensor`.

Compilations and executors use it. A value of the forward graph becomes an extra output, copied where it is computed, so
that later in-place writes do not show. An observer reads the values that only the step has, and hyper-parameters come
from the optimizer.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ...capture import StepGraph, TensorInfo
from ...engines.calls.call_plan import CallPlan
from ...engines.calls.step_anchors import StepObserver
from .._logging import cpp_log
from ..enums import OutputMode
from ..errors import native_error
from ..options import Options
from .compiler_names import name_step_values, name_tensors

__all__ = ["Anchors", "OptimizerNames", "find_anchors", "list_tensor_names"]

_MODE_NAMES = {OutputMode.All: "ALL", OutputMode.EveryN: "EVERYN", OutputMode.Final: "FINAL", OutputMode.Sum: "Sum"}


class OptimizerNames(NamedTuple):
    """The names that an optimizer adds: its state tensors by parameter, and those of its hyper-parameters."""

    slots: Mapping[str, Tuple[str, ...]] = MappingProxyType({})
    hyper_parameters: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Anchors:
    """The anchors of a compiled model: `graph` has those of the forward pass as further outputs.

    `forward` are the short names of those, in order; `observer` reads the values of steps called `of_step`;
    `hyper_parameters` gives the names of hyper-parameters by short names.
    """

    graph: StepGraph
    num_outputs: int
    forward: Tuple[str, ...]
    of_step: Tuple[str, ...]
    observer: Optional[StepObserver]
    hyper_parameters: Mapping[str, str]

    def take(
        self, results: List[torch.Tensor], values: Mapping[str, torch.Tensor], plan: CallPlan
    ) -> Dict[str, torch.Tensor]:
        """Take the anchors out of the `results` of a call; `values` are hyper-parameters by their long names."""
        # In place: the rest is returned to the user as the outputs.
        last = self.num_outputs + len(self.forward)
        found = dict(zip(self.forward, results[self.num_outputs : last]))
        del results[self.num_outputs : last]
        if self.observer is not None:
            found.update(zip(self.of_step, self.observer.collect_results()))
        for short_name, long_name in self.hyper_parameters.items():
            if long_name in values:  # other settings may have made it a constant of the executable
                # It is the same for all micro-batches: one value for each that the output mode keeps, or their sum.
                value = values[long_name]
                if plan.output_mode == "sum":
                    value = value * (plan.iterations * plan.accumulation)
                found[short_name] = value if plan.num_kept <= 1 else value.repeat(plan.num_kept)
        return found


def list_tensor_names(graph: StepGraph, plan: CallPlan, optimizer: OptimizerNames) -> List[str]:
    """Return the names of all tensors of a compiled model that can be anchored."""
    of_step = name_step_values(graph, slots=optimizer.slots, adapts_loss_scaling=plan.adapts_loss_scaling)
    return [*name_tensors(graph), *of_step, *optimizer.hyper_parameters]


def find_anchors(
    graph: StepGraph, options: Options, plan: CallPlan, optimizer_names: Callable[[], OptimizerNames]
) -> Anchors:
    """Return the sources of the tensors that `options` anchor; raises `poptorch.Error` for an unknown name."""
    optimizer = optimizer_names()
    nodes = name_tensors(graph)
    steps = name_step_values(graph, slots=optimizer.slots, adapts_loss_scaling=plan.adapts_loss_scaling)
    wanted = {short_name: anchor[0] for short_name, anchor in options.anchored_tensors.items()}
    for long_name, _inherits, mode, period in options.anchored_tensors.values():
        cpp_log("debug", f"  anchor ( {long_name} {_MODE_NAMES[OutputMode(mode)]}/{period} )")
    for long_name in wanted.values():
        if long_name not in nodes and long_name not in steps and long_name not in optimizer.hyper_parameters:
            raise native_error(f"Anchor tensor `{long_name}' not in Ir Tensors", kind="popart_exception")
    forward = {short: nodes[long] for short, long in wanted.items() if long in nodes}
    of_step = {short: steps[long] for short, long in wanted.items() if long in steps and long not in nodes}
    others = {short: long for short, long in wanted.items() if long not in nodes and long not in steps}
    return Anchors(
        # a name that both have is that of the forward graph
        graph=_append_outputs(graph, list(forward.values())),
        num_outputs=len(graph.outputs),
        forward=tuple(forward),
        of_step=tuple(of_step),
        observer=StepObserver(list(of_step.values())) if of_step else None,
        hyper_parameters=others,
    )


def _append_outputs(graph: StepGraph, anchored: Sequence[torch.fx.Node]) -> StepGraph:
    """Return `graph` with copies of the values of `anchored` nodes as further outputs, before the loss."""
    if not anchored:
        return graph
    # a copy: the graph without anchors is what is saved, listed and compared
    extended = torch.fx.Graph()
    images: Dict[torch.fx.Node, torch.fx.Node] = {}
    result: Any = extended.graph_copy(graph.graph, images)
    first = next((node for node in extended.nodes if node.op == "call_function"), None)
    copies = [_insert_copy(extended, images[node], first) for node in anchored]
    num_outputs = len(graph.outputs)
    extended.output((*result[:num_outputs], *copies, *result[num_outputs:]))
    infos = []
    for node in anchored:
        dtype, shape = node.meta["val"].dtype, tuple(node.meta["val"].shape)
        infos.append(TensorInfo(name=node.name, kind="output", shape=shape, dtype=dtype, host_dtype=dtype))
    return dataclasses.replace(graph, graph=extended, outputs=(*graph.outputs, *infos))


def _insert_copy(graph: torch.fx.Graph, node: torch.fx.Node, first: Optional[torch.fx.Node]) -> torch.fx.Node:
    """Insert a copy of the value that `node` has before anything else can change it."""
    # all placeholders come before `first`, and none may follow an operator
    is_input = node.op == "placeholder" and first is not None
    with graph.inserting_before(first) if is_input else graph.inserting_after(node):
        # detached first, or the copy would be part of the backward pass
        detached = graph.call_function(torch.ops.aten.detach.default, (node,))
    with graph.inserting_after(detached):
        copy = graph.call_function(torch.ops.aten.clone.default, (detached,))
    for added in (detached, copy):
        added.meta.update(val=node.meta["val"], module_path=node.meta.get("module_path", ""), place=None)
    return copy
