"""The computation order of a training step: which values wait for the backward pass, and which are computed again.

A policy turns stretches of the forward pass into segments. A segment keeps what enters it and forgets what it computes
in between; the backward pass computes that again from the same values, so that losses and gradients are the same to the
last bit. Random operators and writes to the model's state stay outside of segments: they run once.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Set, Tuple

import torch
from torch.utils.checkpoint import checkpoint

from ...capture import StepGraph
from ...capture.graph_flow import ValueFlow, constant_outputs, output_nodes, tensor_memory, written_nodes
from ...capture.subgraphs import Body
from ...options import ComputationOrder, refuse_order
from ...torch_insides.operators import OpOverload
from .. import recompute

if TYPE_CHECKING:
    from .plans import Plan
    from .value_units import UnitGraph

__all__ = ["order_computation", "recomputes", "run_segment"]


def order_computation(graph: StepGraph, order: ComputationOrder) -> StepGraph:
    """Return a step that computes the same as `graph` and recomputes what `order` says; `graph` where that is nothing.

    A step without a backward pass has nothing to keep and stays as it is. Raises ExecutableError E026 for commands of a
    custom order that do not fit the graph.
    """
    if not order.recomputes or not (graph.has_loss and graph.loss_has_gradient):
        return graph
    units = recompute.UnitGraph.of(graph)
    if order.policy == "dummy2":
        plan = recompute.plan_everything(units)
    elif order.policy == "chen":
        plan = recompute.plan_chen(units, budget_bytes=order.budget_bytes)
    elif order.policy == "custom":
        plan = _plan_custom(units, order.commands)
    else:
        plan = recompute.plan_lower_sets(units, budget_bytes=order.budget_bytes, saves_time=order.policy == "gttime")
    return _insert_segments(graph, units, plan)


def recomputes(graph: StepGraph) -> bool:
    """Tell whether the backward pass of `graph` computes anything again."""
    return any(node.target is run_segment for node in graph.graph.nodes)


def run_segment(body: Callable[..., Sequence[Any]], statistics: Sequence[int], *arguments: Any) -> Sequence[Any]:
    """Run a segment's `body`, and once more when the backward pass asks for what it has computed.

    `statistics` are the indices of arguments that the body updates and does not depend on: the second run does so on
    copies of them.
    """
    if not torch.is_grad_enabled():
        return body(*arguments)
    updated = {index: arguments[index] for index in statistics}
    # `checkpoint` keeps its arguments. Statistics pass by it, because the first run writes to them in place.
    kept = [argument for index, argument in enumerate(arguments) if index not in updated]
    runs = 0

    def compute(*values: Any) -> Sequence[Any]:
        nonlocal runs
        runs += 1
        remaining = iter(values)
        # The statistics have moved on once when the backward pass runs the body again.
        own = updated if runs == 1 else {index: tensor.clone() for index, tensor in updated.items()}
        return body(*(own[index] if index in own else next(remaining) for index in range(len(arguments))))

    # Segments have no random operators, so that no state of a generator has to be kept; and the check compares shapes
    # that are static anyway.
    results: Sequence[Any] = checkpoint(
        compute, *kept, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
    )
    return results


# -- plans -------------------------------------------------------------------------------------------------------------


def _plan_custom(units: UnitGraph, commands: Sequence[Tuple[str, int]]) -> Plan:
    """Forget what the commands say: the values of a unit (o, t), or those that it reads (i)."""
    count = len(units.units)
    forgotten: Set[int] = set()
    for command, number in commands:
        if command != "CB" and number >= count:
            raise refuse_order(f"`{command}{number}`: the step has units 0 to {count - 1}")
        if command == "FFi":
            forgotten |= units.uses[number]
        elif command.startswith("FF"):
            forgotten.add(number)
        elif command == "CF":
            forgotten.discard(number)
    stretches: List[List[int]] = []
    for number in range(count):
        if not stretches or (number in forgotten) != (stretches[-1][-1] in forgotten):
            stretches.append([])
        stretches[-1].append(number)
    return recompute.Plan(tuple(map(tuple, stretches)), tuple(stretch[0] in forgotten for stretch in stretches))


# -- the graph with segments -------------------------------------------------------------------------------------------


def _insert_segments(graph: StepGraph, units: UnitGraph, plan: Plan) -> StepGraph:
    tracked = ValueFlow.follow(graph).with_gradient
    # A value out of a segment comes from a call, and nobody could tell any more that no input changes it.
    excluded = _collect_sources_of_constants(graph)
    runs: List[Tuple[List[torch.fx.Node], bool]] = []
    for stretch, is_recomputed in zip(plan.stretches, plan.recomputed):
        stages = _split_into_stages(units, stretch) if is_recomputed else [(list(stretch), False)]
        for numbers, can_be_segment in stages:
            nodes = [node for number in numbers for node in units.units[number].nodes]
            # of a single operator nothing lies in between that could be forgotten
            num_computing = sum(node in tracked and _is_computing(node) for node in nodes)
            is_segment = can_be_segment and num_computing > 1 and not excluded.intersection(nodes)
            runs.append((nodes, is_segment))
    if not any(is_segment for _nodes, is_segment in runs):
        return graph
    emitted = torch.fx.Graph()
    images = {node: emitted.node_copy(node) for node in graph.placeholders}
    for nodes, is_segment in runs:
        if is_segment:
            _emit_segment(emitted, nodes, images)
        else:
            for node in nodes:
                images[node] = emitted.node_copy(node, images.__getitem__)
    emitted.node_copy(next(iter(reversed(graph.graph.nodes))), images.__getitem__)  # the output node
    return dataclasses.replace(graph, graph=emitted)


def _is_computing(node: torch.fx.Node) -> bool:
    """Tell an operator that fills memory, its own or another's, from a view."""
    if not isinstance(node.target, OpOverload):
        return False
    is_view = tensor_memory(node) in map(tensor_memory, node.all_input_nodes)
    return not is_view or bool(written_nodes(node))


def _split_into_stages(units: UnitGraph, stretch: Sequence[int]) -> List[Tuple[List[int], bool]]:
    """Split a stretch into stages that run one after another: by turns kept units, and units that can run again."""
    stage_of: Dict[int, int] = {}
    for number in stretch:
        stage = max((stage_of[item] for item in units.before[number] if item in stage_of), default=0)
        # Odd stages can run again, even ones are kept: a unit goes into the first stage of its kind after those that it
        # waits for.
        stage_of[number] = stage + (stage % 2 == int(units.units[number].is_kept))
    stages: Dict[int, List[int]] = {}
    for number in stretch:
        stages.setdefault(stage_of[number], []).append(number)
    return [(stages[stage], stage % 2 == 1) for stage in sorted(stages)]


def _collect_sources_of_constants(graph: StepGraph) -> Set[torch.fx.Node]:
    """Return what the outputs that no input changes are made of: they must stay recognisable as such."""
    returned = output_nodes(graph.graph)
    waiting = [returned[index] for index in constant_outputs(graph)]
    found: Set[torch.fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _emit_segment(
    emitted: torch.fx.Graph, nodes: Sequence[torch.fx.Node], images: Dict[torch.fx.Node, torch.fx.Node]
) -> None:
    inside = set(nodes)
    entering = list(dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside))
    leaving = [node for node in nodes if any(user not in inside for user in node.users)]
    body = torch.fx.Graph()
    local: Dict[torch.fx.Node, torch.fx.Node] = {}
    for number, node in enumerate(entering):
        local[node] = body.placeholder(f"input_{number}")
        local[node].meta.update(val=node.meta.get("val"), kind="input", state_name=local[node].name)
    for node in nodes:
        local[node] = body.node_copy(node, local.__getitem__)
    body.output(tuple(local[node] for node in leaving))
    updated = {item for node in nodes for item in recompute.statistics_written_by(node)}
    statistics = tuple(number for number, node in enumerate(entering) if node in updated)
    arguments: Any = (Body(body), statistics, *(images[node] for node in entering))
    call = emitted.call_function(run_segment, arguments)
    paths = [str(node.meta.get("module_path", "")).split(".") for node in nodes]
    common = ".".join(parts[0] for parts in zip(*paths) if len(set(parts)) == 1)
    call.meta.update(operator="segment", module_path=common, place=nodes[0].meta.get("place"))
    for number, node in enumerate(leaving):
        # With the old name: messages and anchors know a value by it.
        images[node] = emitted.create_node("call_function", operator.getitem, (call, number), name=node.name)
        images[node].meta.update(node.meta)
