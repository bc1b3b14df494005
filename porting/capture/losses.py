"""Finds the loss of a captured step: back-propagation starts from the one loss operator that feeds no other.

PopTorch's rule: every built-in loss function and `identity_loss` counts; a loss that another one is computed from is an
ordinary value; exactly one must remain.
"""

from __future__ import annotations

import itertools
from typing import List, Set, Tuple

import torch

from ..diagnostics import CaptureError
from ..torch_insides.operators import OpOverload
from .graph_flow import tensor_memories, tensor_memory, written_nodes
from .operator_schema import operator_name

__all__ = ["find_losses", "single_final_loss", "value_when_computed"]

_LOSS_OPERATORS = frozenset(
    "identity_loss nll_loss nll_loss2d nll_loss_nd cross_entropy_loss l1_loss mse_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div poisson_nll_loss smooth_l1_loss soft_margin_loss hinge_embedding_loss "
    "cosine_embedding_loss margin_ranking_loss triplet_margin_loss ctc_loss".split()
)


def find_losses(graph: torch.fx.Graph) -> Tuple[List[torch.fx.Node], List[torch.fx.Node]]:
    """Return the final losses of `graph` and the demoted ones, those that another loss is computed from."""
    # a loss that torch computes from several operators says itself which of them it is
    losses = [node for node in graph.nodes if node.meta.get("is_loss", _name_operator(node) in _LOSS_OPERATORS)]
    final = [loss for loss in losses if not _follow_values(loss).intersection(losses)]
    return final, [loss for loss in losses if loss not in final]


def _name_operator(node: torch.fx.Node) -> str:
    return operator_name(node.target) if isinstance(node.target, OpOverload) else ""


def _follow_values(start: torch.fx.Node) -> Set[torch.fx.Node]:
    """Return the nodes whose value depends on that of `start`, also by way of memory that is written to in place."""
    reached = {start}
    memory: Set[int] = set()
    for node in itertools.dropwhile(lambda node: node is not start, start.graph.nodes):
        if any(used in reached or tensor_memory(used) in memory for used in node.all_input_nodes):
            # what is written in place is seen through all views of that memory from here on
            reached.add(node)
            memory.update(tensor_memories(written_nodes(node)))
    return reached - {start}


def value_when_computed(loss: torch.fx.Node) -> torch.fx.Node:
    """Return a node with the value that `loss` has when it is computed: a copy where later operators write to it."""
    later = itertools.dropwhile(lambda node: node is not loss, loss.graph.nodes)
    written = (target for node in itertools.islice(later, 1, None) for target in written_nodes(node))
    if tensor_memory(loss) not in map(tensor_memory, written):
        return loss
    with loss.graph.inserting_after(loss):
        copy = loss.graph.call_function(torch.ops.aten.clone.default, (loss,))
    value = loss.meta["val"]
    with value.fake_mode:
        # the copy has memory of its own, which is what its users are told by
        copy.meta.update(val=value.clone(), module_path=loss.meta.get("module_path", ""), place=loss.meta.get("place"))
    return copy


def single_final_loss(graph: torch.fx.Graph) -> torch.fx.Node:
    """Return the node that back-propagation starts from.

    Raises CaptureError L004 when `graph` has no loss and L005 when it has several that are independent of each other.
    """
    final, _demoted = find_losses(graph)
    if not final:
        others = [node for node in graph.nodes if _name_operator(node).endswith("_loss")]
        raise CaptureError.of(
            "L004",
            message="`forward` of the training model computes no loss",
            place=others[-1].meta.get("place") if others else None,
            label="the device does not take this operator for a loss" if others else "",
            notes=("most built-in loss functions count, and so does `poptorch.identity_loss`",),
            help=(
                "compute the loss in `forward`, with a loss function of torch, and pass the label to the call",
                "a loss written by hand is marked: `poptorch.identity_loss(value, 'mean')`",
                "with `to_ipu`, pass the loss instead: `to_ipu(model, loss)`",
            ),
        )
    if len(final) > 1:
        places = [place for place in (loss.meta.get("place") for loss in final) if place is not None]
        raise CaptureError.of(
            "L005",
            message=f"`forward` computes {len(final)} independent losses",
            place=final[-1].meta.get("place"),
            label="one of several final losses",
            notes=tuple(f"a loss is computed at {place}" for place in places),
            help="add them up and mark the sum: `poptorch.identity_loss(a + b, reduction='none')`",
        )
    return final[0]
