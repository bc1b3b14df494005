"""The units of a captured step that can be computed, forgotten and computed again: operators around one memory.

An operator belongs together with the views of its result and with what writes to that in place; so does everything
that could not be moved apart without another result. What must run exactly once, in the order of the program, makes
its unit a kept one: random numbers, calls of the host, writes to weights and buffers.
"""

from __future__ import annotations

import heapq
import operator
from collections import Counter
from dataclasses import dataclass
from typing import AbstractSet, Any, Dict, Iterable, List, Sequence, Set, Tuple

import torch

from ...capture import StepGraph
from ...capture.device_operators import device_operator
from ...capture.graph_flow import is_random, tensor_memories, tensor_memory, written_nodes
from ...capture.operator_schema import name_arguments
from ...torch_insides.operators import SET_GRAD_ENABLED, OpOverload, read_schema
from .flop_counts import count_node_flops

__all__ = ["Unit", "UnitGraph", "statistics_written_by"]


@dataclass(frozen=True, eq=False)
class Unit:
    """Operators that are computed together, in the order of the program.

    `num_bytes` is the memory that their results fill, `flops` what they compute. A kept unit runs once.
    """

    nodes: Tuple[torch.fx.Node, ...]
    num_bytes: int
    flops: int
    is_kept: bool


@dataclass(frozen=True, eq=False)
class UnitGraph:
    """The units of a step in an order in which they can run, and what each has to wait for.

    `before[i]` are the units that unit i waits for; `uses[i]` those of them whose results it reads.
    """

    units: Tuple[Unit, ...]
    before: Tuple[AbstractSet[int], ...]
    uses: Tuple[AbstractSet[int], ...]

    @classmethod
    def of(cls, graph: StepGraph) -> UnitGraph:
        """Find the units of `graph`."""
        nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
        position = {node: number for number, node in enumerate(nodes)}
        facts = _MemoryFacts(graph, nodes)
        # A switch of autograd inside a segment would be made again in the backward pass.
        region = _list_without_gradient(nodes)
        joined = _pair_nodes(nodes, position, facts) + list(zip(region, region[1:]))
        inputs = ((used, number) for number, node in enumerate(nodes) for used in node.all_input_nodes)
        reads = [(position[used], number) for used, number in inputs if used in position]
        effects = [number for number, node in enumerate(nodes) if facts.runs_once(node)]
        waits = [*reads, *zip(effects, effects[1:]), *_order_reads_before_writes(nodes)]
        group = _group_nodes(len(nodes), joined, waits)
        kept = {group[number] for number in (*effects, *region)}
        return _order_units(nodes, group, kept, waits=waits, reads=reads)


def statistics_written_by(node: torch.fx.Node) -> List[torch.fx.Node]:
    """Return the running statistics that a normalisation in training updates, and that its result does not depend on.

    Computing such a node again on copies of them gives the same result.
    """
    target: Any = node.target
    if isinstance(target, OpOverload) and read_schema(target).name in _NORMALISATIONS:
        named = name_arguments(target, node.args, node.kwargs)
        if named.get("training", named.get("use_input_stats")):
            found = (named.get("running_mean"), named.get("running_var"))
            return [item for item in found if isinstance(item, torch.fx.Node)]
    return []


_NORMALISATIONS = frozenset(["aten::batch_norm", "aten::instance_norm", "aten::native_batch_norm"])


class _MemoryFacts:
    """Which memory comes from outside of the operators, and what is written to of it."""

    def __init__(self, graph: StepGraph, nodes: Sequence[torch.fx.Node]) -> None:
        self.entering = tensor_memories(graph.placeholders)
        statistics = tensor_memories(item for node in nodes for item in statistics_written_by(node))
        written = tensor_memories(item for node in nodes for item in _list_writes(node))
        num_users = Counter(memory for node in nodes for memory in statistics & tensor_memories(node.all_input_nodes))
        # What changes would be read in another state the second time.
        self._changing = written & self.entering | {memory for memory, number in num_users.items() if number > 1}

    def runs_once(self, node: torch.fx.Node) -> bool:
        """Tell whether `node` may not be computed a second time."""
        target: Any = node.target
        if target is operator.getitem:
            return False
        if not isinstance(target, OpOverload) or is_random(node):
            return True
        special = device_operator(target)
        if special is not None and not special.is_pure or target.namespace != "aten" and special is None:
            return True
        return not self._changing.isdisjoint(tensor_memories(node.all_input_nodes))


def _list_writes(node: torch.fx.Node) -> List[torch.fx.Node]:
    """Return what `node` writes to, save statistics that do not matter to its result."""
    statistics = statistics_written_by(node)
    return [item for item in written_nodes(node) if item not in statistics]


# -- what belongs together ---------------------------------------------------------------------------------------------


def _pair_nodes(
    nodes: Sequence[torch.fx.Node], position: Dict[torch.fx.Node, int], facts: _MemoryFacts
) -> List[Tuple[int, int]]:
    """List pairs of nodes that belong into one unit: parts of results, views and writers."""
    pairs: List[Tuple[int, int]] = []
    first_of: Dict[int, int] = {}
    for number, node in enumerate(nodes):
        if node.target is operator.getitem:
            pairs.append((position[node.args[0]], number))  # type: ignore[index]
        memories = {tensor_memory(item) for item in (node, *_list_writes(node))} - facts.entering - {-1}
        # The first node that touches a memory made it; views and writers join that one.
        pairs += [(first_of.setdefault(memory, number), number) for memory in memories]
    return pairs


def _list_without_gradient(nodes: Sequence[torch.fx.Node]) -> List[int]:
    """List the nodes inside `torch.no_grad()` and the like, the switches among them; they stay together."""
    found, is_enabled = [], True
    for number, node in enumerate(nodes):
        is_switch = node.target is SET_GRAD_ENABLED
        if is_switch:
            is_enabled = bool(node.args[0])
        if is_switch or not is_enabled:
            found.append(number)
    return found


def _order_reads_before_writes(nodes: Sequence[torch.fx.Node]) -> List[Tuple[int, int]]:
    """Let what reads a memory come before what writes over it later."""
    readers: Dict[int, List[int]] = {}
    pairs = []
    for number, node in enumerate(nodes):
        for item in _list_writes(node):
            pairs += [(reader, number) for reader in readers.get(tensor_memory(item), ()) if reader != number]
        for item in node.all_input_nodes:
            readers.setdefault(tensor_memory(item), []).append(number)
    return pairs


def _group_nodes(count: int, joined: Sequence[Tuple[int, int]], waits: Iterable[Tuple[int, int]]) -> List[int]:
    """Return for each node the first one of its unit: nodes that are joined, or that wait for each other."""
    # Imported late: it takes half a second, and only steps that recompute need it.
    from sympy.utilities.iterables import strongly_connected_components

    edges = {*waits, *joined, *((second, first) for first, second in joined)}
    group = [0] * count
    # Units that wait for each other cannot run one after the other, so they become one.
    for members in strongly_connected_components((range(count), sorted(edges))):
        first = min(members)
        for member in members:
            group[member] = first
    return group


# -- the graph of units ------------------------------------------------------------------------------------------------


def _order_units(
    nodes: Sequence[torch.fx.Node],
    group: Sequence[int],
    kept: AbstractSet[int],
    *,
    waits: Iterable[Tuple[int, int]],
    reads: Iterable[Tuple[int, int]],
) -> UnitGraph:
    """Put the groups in an order in which they can run, as near to that of the program as may be."""
    members: Dict[int, List[int]] = {}
    for number, root in enumerate(group):
        members.setdefault(root, []).append(number)
    before: Dict[int, Set[int]] = {root: set() for root in members}
    uses: Dict[int, Set[int]] = {root: set() for root in members}
    for pairs, edges in ((waits, before), (reads, uses)):
        for first, second in pairs:
            if group[first] != group[second]:
                edges[group[second]].add(group[first])
    order = _sort_topologically(members, before)
    number_of = {root: number for number, root in enumerate(order)}
    units = tuple(_make_unit([nodes[number] for number in members[root]], root in kept) for root in order)
    return UnitGraph(
        units,
        tuple(frozenset(number_of[item] for item in before[root]) for root in order),
        tuple(frozenset(number_of[item] for item in uses[root]) for root in order),
    )


def _sort_topologically(members: Dict[int, List[int]], before: Dict[int, Set[int]]) -> List[int]:
    after: Dict[int, List[int]] = {root: [] for root in members}
    missing = {root: len(items) for root, items in before.items()}
    for root, items in before.items():
        for item in items:
            after[item].append(root)
    # Of the groups that can run, the one that the program has first goes first, so that memory is used in its order.
    ready = [(numbers[0], root) for root, numbers in members.items() if not missing[root]]
    heapq.heapify(ready)
    order = []
    while ready:
        _first, root = heapq.heappop(ready)
        order.append(root)
        for item in after[root]:
            missing[item] -= 1
            if not missing[item]:
                heapq.heappush(ready, (members[item][0], item))
    assert len(order) == len(members), "no group waits for itself"
    return order


def _make_unit(nodes: List[torch.fx.Node], is_kept: bool) -> Unit:
    entering = tensor_memories(used for node in nodes for used in node.all_input_nodes if used not in nodes)
    values = {tensor_memory(node): node.meta["val"] for node in nodes if tensor_memory(node) not in entering | {-1}}
    num_bytes = sum(value.untyped_storage().nbytes() for value in values.values())
    return Unit(tuple(nodes), num_bytes, sum(map(count_node_flops, nodes)), is_kept)
