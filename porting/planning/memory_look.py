"""This module looks at a step that is compiled: whether it would fit into an IPU, as its port warns or refuses.

A step is looked at closely only where an upper bound does not fit. The bound comes from the shapes in the graph alone,
which costs almost no time, and is about twice what the step will need.
"""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Iterable, Optional

import torch

from .. import planning
from ..capture import StepGraph
from ..capture.subgraphs import Body
from ..diagnostics import Finding, PortingError, Severity, take_first_line
from ..machines import DEFAULT, find_machine
from ..options import PortOptions
from ..simulator.errors import OutOfMemoryError, memory_error
from ..torch_insides.trees import tree_leaves
from .memory_model import balance_bytes, count_program_bytes
from .optimizer_bytes import count_bytes_per_weight
from .step_memory import PRODUCTS, count_device_bytes

if TYPE_CHECKING:
    from .plan_record import Plan

__all__ = ["FITS", "bound_bytes", "find_unfit_plan", "make_memory_error"]

FITS = 0.85
"""The share of an IPU's memory up to which a step is looked at no closer."""


# what is kept, its gradient, and a product's copies of its operands
_COPIES = 3
# gates and states of recurrent layers, for each value that comes out of them
_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])
_RECURRENT_COPIES = 12
# operators that make and keep nothing besides their result and what they read, with the most that they keep, as so many
# times the result: views nothing, a mask or the places of maxima are as large, and statistics are smaller
_KEPT_RESULTS = {
    **dict.fromkeys(
        "chunk detach expand permute select slice split split_with_sizes squeeze t transpose unbind unsqueeze "
        "view".split(),
        0,
    ),
    # what is written over may be copied first
    **dict.fromkeys("add_ copy_ div_ mul_ relu_ sub_".split(), 1),
    **dict.fromkeys(
        "add bmm cat clone contiguous conv1d conv2d conv3d div elu embedding exp flatten gelu identity_loss leaky_relu "
        "linear log matmul mean mm mul neg pow relu reshape rsqrt sigmoid silu sqrt stack sub sum tanh to".split(),
        1,
    ),
    **dict.fromkeys("adaptive_avg_pool2d avg_pool2d dropout log_softmax softmax".split(), 2),
    **dict.fromkeys("batch_norm group_norm layer_norm max_pool1d max_pool2d".split(), 3),
}


def find_unfit_plan(
    graph: StepGraph, options: PortOptions, optimizer: Optional[torch.optim.Optimizer], *, target: str = DEFAULT
) -> Optional[Plan]:
    """Return the plan of a captured step that would not fit into an IPU of `target`, with the first remedy, or None.

    None as well for a step whose memory cannot be predicted, such as one with a branch; with `memory="error"` that is
    PortingError M002.
    """
    machine = find_machine(target)
    per_weight = count_bytes_per_weight(optimizer) if graph.mode == "training" else 0
    bound = bound_bytes(graph, num_stages=len(options.stage_ipus), bytes_per_weight=per_weight)
    if bound <= FITS * machine.chip.memory_bytes:
        return None
    nodes = list(graph.graph.nodes)
    for node, number in zip(nodes, planning.number_stages(node.meta.get("ipu") for node in nodes)):
        node.meta["pipeline_stage"] = number
    try:
        step = planning.walk_step(graph, next((info.shape[0] for info in graph.inputs if info.shape), 1))
    except PortingError as error:
        if error.code != "M002":
            raise
        if options.memory == "error":
            help = (*error.finding.help, 'compile it unlooked at: `PortOptions(memory="warn")`')
            raise PortingError(replace(error.finding, help=help)) from error
        return None
    ipus = None if options.stages else 1
    planned = planning.make_plan(step, options, optimizer, machine, ipus=ipus, find_remedies=planning.list_first_remedy)
    return planned if planned.finding is not None else None


def make_memory_error(planned: Plan, finding: Finding) -> OutOfMemoryError:
    """Make the error with which a compilation on the machine of the plan would end, with the plan's numbers."""
    chip = planned.target
    vendors = memory_error(
        -(-planned.bytes_per_ipu // chip.num_tiles),
        tile_bytes=chip.tile_bytes,
        num_tiles=chip.num_tiles,
        ipu=planned.fullest.ipu,
    )
    notes = (*finding.notes, f"PopTorch says then: {take_first_line(vendors.message)}")
    return OutOfMemoryError(replace(finding, severity=Severity.ERROR, notes=notes), vendors)


def bound_bytes(graph: StepGraph, *, num_stages: int, bytes_per_weight: int) -> float:
    """Return a bound of the bytes on one IPU; infinite for loops and branches, whose shapes do not tell.

    `bytes_per_weight` are those of its gradient and of the optimizer's state. A stage of a pipeline keeps values of up
    to two micro-batches for each of the `num_stages`.
    """
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    if any(isinstance(argument, Body) for node in nodes for argument in node.args):
        return math.inf
    weights = sum(count_device_bytes(info.shape, info.dtype) for info in (*graph.parameters, *graph.buffers))
    num_weights = sum(math.prod(info.shape) for info in graph.parameters)
    code = count_program_bytes(sum(_name_operator(node) in PRODUCTS for node in nodes))
    if num_stages > 1:
        # a value may be read in several stages, and is counted for each of them
        values = 2 * num_stages * _COPIES * sum(map(_measure_operator, nodes))
    else:
        ends = sum(count_device_bytes(info.shape, info.dtype) for info in (*graph.inputs, *graph.outputs))
        temporary = max((_measure_operator(node) + _count_tensors(node.all_input_nodes) for node in nodes), default=0)
        values = 2 * ends + sum(map(_bound_kept, nodes)) + 2 * temporary
    return balance_bytes(2 * weights + num_weights * bytes_per_weight + values + code)


def _bound_kept(node: torch.fx.Node) -> int:
    """Return a bound of the bytes that an operator makes, or makes for itself and keeps for its gradient."""
    # each of several results is a node of its own, which takes it
    source = node.all_input_nodes[0] if node.target is operator.getitem else node
    factor = _KEPT_RESULTS.get(_name_operator(source))
    if factor is None:
        return _COPIES * _measure_operator(node)
    made = factor * _count_tensors([node])
    if _name_operator(node) in PRODUCTS:
        # they copy what lies in another order
        made += _count_tensors([used for used in node.all_input_nodes if not used.meta["val"].is_contiguous()])
    return made


def _count_tensors(nodes: Iterable[torch.fx.Node]) -> int:
    values = tree_leaves([node.meta.get("val") for node in nodes])
    return sum(count_device_bytes(value.shape, value.dtype) for value in values if isinstance(value, torch.Tensor))


def _name_operator(node: torch.fx.Node) -> str:
    return str(getattr(getattr(node.target, "overloadpacket", None), "__name__", ""))


def _measure_operator(node: torch.fx.Node) -> int:
    """Return the bytes that an operator reads, makes and may keep for its gradient."""
    operands = [used for used in node.all_input_nodes if used.meta.get("kind") not in ("parameter", "buffer")]
    num_bytes, name = _count_tensors((node, *operands)), _name_operator(node)
    if name in _RECURRENT:
        return _RECURRENT_COPIES * num_bytes
    if name == "scaled_dot_product_attention":
        query, key = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
        # the matrix of scores, which a kernel of the CPU never has as a whole
        return num_bytes + 4 * count_device_bytes((*query.shape[:-1], key.shape[-2]), query.dtype)
    return num_bytes
