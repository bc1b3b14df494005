"""Find modules that are the last to read their input; they may write their result in its place.

Ports use it to judge frozen values.
"""

from __future__ import annotations

from typing import Dict, List, Set

import torch

from ..capture import StepGraph
from ..capture.graph_flow import tensor_memories, tensor_memory

__all__ = ["collect_last_readers"]


def collect_last_readers(graph: StepGraph) -> Set[str]:
    """Return the paths of modules whose operators all read tensors of the step that nothing reads after them.

    The step's inputs belong to the caller, so that a module which reads one is not listed.
    """
    entering = tensor_memories(graph.placeholders)
    places = {node: place for place, node in enumerate(graph.graph.nodes)}
    values: Dict[int, List[torch.fx.Node]] = {}
    paths: Dict[str, bool] = {}
    for node, place in places.items():
        path = node.meta.get("module_path")
        if node.op == "call_function" and path:
            read = tensor_memories(node.all_input_nodes)
            earlier = [value for memory in read for value in values[memory]]
            is_last = not read & entering and all(places[user] <= place for value in earlier for user in value.users)
            paths[path] = is_last and paths.get(path, True)
        values.setdefault(tensor_memory(node), []).append(node)
    return {path for path, is_last in paths.items() if is_last}
