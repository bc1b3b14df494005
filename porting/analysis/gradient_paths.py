"""Find the parameters of a captured training step that get no gradient: no path leads to them from the loss.

The step checks run it.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Set

import torch

from ..capture import StepGraph
from ..capture.graph_flow import ValueFlow, output_nodes, tensor_memory, written_nodes
from ..diagnostics import Finding, join_names, say_number

__all__ = ["iter_gradient_faults", "list_parameters_without_gradient"]

_MOST_NAMES = 5


def iter_gradient_faults(graph: StepGraph) -> Iterator[Finding]:
    """Yield L003 where no trainable parameter reaches the loss, else L020 for the parameters that do not reach it."""
    if graph.mode != "training" or not graph.has_loss:
        return
    trainable = [info.name for info in graph.parameters if info.requires_grad]
    if not trainable:
        yield Finding(
            "L003",
            message="no parameter of the model is trainable",
            help="call `requires_grad_(True)` on what should train, or use `ported.inference()`",
        )
        return
    if not graph.loss_has_gradient:
        yield Finding(
            "L003",
            place=output_nodes(graph.graph)[-1].meta.get("place"),
            label="no trainable parameter leads here",
            help="leave out `.detach()` and `torch.no_grad()` on the way from the parameters to the loss",
        )
        return
    without = list_parameters_without_gradient(graph)
    if not without:
        return
    placeholders = dict(zip((info.name for info in graph.parameters), graph.placeholders))
    unused = [name for name in without if not placeholders[name].users]
    used = [name for name in without if placeholders[name].users]
    for names, reason in ((unused, "`forward` does not use"), (used, "no way leads from the loss to")):
        if names:
            one = next(iter(placeholders[names[0]].users), None)
            yield Finding(
                "L020",
                message=f"{say_number(len(names), 'parameter')} {'gets' if len(names) == 1 else 'get'} no gradient: "
                f"{reason} {join_names(names, most=_MOST_NAMES)}",
                place=None if one is None else one.meta.get("place"),
                label="it is used here" if one is not None else "",
                notes="plain PyTorch trains them as little; on the device they take memory all the same",
                help=(
                    "leave them out of the model, or let `forward` use them",
                    "if they are meant to stay as they are: `requires_grad_(False)`",
                ),
            )


def list_parameters_without_gradient(graph: StepGraph) -> List[str]:
    """List the trainable parameters of a training step that no path leads to, back from its loss.

    >>> from porting import capture_step
    >>> model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "spare": torch.nn.Linear(2, 1)})
    >>> model.forward = lambda x: model["used"](x)
    >>> graph = capture_step(model, [torch.ones(3, 2), torch.ones(3, 1)], loss=torch.nn.functional.mse_loss)
    >>> list_parameters_without_gradient(graph)
    ['spare.weight', 'spare.bias']
    """
    flow = ValueFlow.follow(graph)
    writers: Dict[int, List[torch.fx.Node]] = {}
    for node in graph.graph.nodes:
        for target in written_nodes(node):
            writers.setdefault(tensor_memory(target), []).append(node)
    reached: Set[torch.fx.Node] = set()
    left = [output_nodes(graph.graph)[-1]]
    while left:
        node = left.pop()
        if node in reached or not flow.has_gradient(node):
            continue
        reached.add(node)
        left += [*node.all_input_nodes, *writers.get(tensor_memory(node), ())]
    return [
        info.name
        for info, node in zip(graph.parameters, graph.placeholders)
        if info.requires_grad and node not in reached
    ]
