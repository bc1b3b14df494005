"""Replay a step with its recurrent layers in compiled loops over time, forward and backward.

Torch computes a GRU or a plain RNN by a dozen operators in each step of time, which autograd keeps apart; and its
products for a gradient are one in each step. Here the products with the input, and those that make the gradients of the
weights, are one over all steps, and the steps themselves are a loop of one product and one pass over the gates, in C++.
All other operators are replayed, and nothing but the loops is compiled, in a second, however long the sequence is.
Results are those of torch but for rounding.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import torch

from ...capture import StepGraph
from ...capture.operator_schema import name_arguments
from ...capture.subgraphs import bodies_of
from ..aot.compile_process import compile_in_child
from ..calls.executable import BuildRequest, Choice
from ..compiled.compile_settings import CompileSettings
from ..compiled.folder_engine import FolderEngine
from ..compiled.why_replay import why_plan_is_replayed
from ..contract.choices import list_updates
from ..contract.failures import NotCompilable, why_not_tuned
from ..contract.limits import CompileLimits
from ..replay.direct_calls import Call
from ..replay.replay import ReplayExecutable
from ..replay.wide_operators import find_wide_call
from .compiler import LIBRARY, SOURCE
from .kernels import Kernels
from .layers import RECURRENT_OPERATORS, make_operator

__all__ = ["RECURRENCE", "RecurrenceEngine", "list_recurrent_nodes"]


class RecurrenceEngine(FolderEngine[ReplayExecutable]):
    """Replay with compiled loops for recurrent layers."""

    name = "recurrence"
    replays_most = True

    def list_choices(self, graph: StepGraph, request: BuildRequest) -> List[Choice]:
        """Return a choice for each kind of update, if the step has recurrent layers."""
        updates = list_updates(request) if list_recurrent_nodes(graph.graph) else []
        return [Choice(self.name, fused_update=fused) for fused in updates]

    def compile(
        self,
        graph: StepGraph,
        request: BuildRequest,
        folder: Path,
        *,
        limits: CompileLimits,
        progress: Optional[Callable[[float], None]] = None,
    ) -> None:
        """Compile the loops into `folder`.

        Raises NotCompilable for a step that has no recurrent layer to loop over, or needs replay, and CompileFailure
        where the compiler fails.
        """
        reason = why_not_tuned(request) or why_plan_is_replayed(request.plan)
        if reason or not list_recurrent_nodes(graph.graph):
            raise NotCompilable(reason or "it has no recurrent layer in float32 that could run in a loop of its own")
        compile_in_child(
            SOURCE,
            folder / self.name,
            settings=CompileSettings(),
            limits=limits,
            progress=progress,
            compiler="porting.engines.recurrence.compiler",
        )

    def load(self, graph: StepGraph, request: BuildRequest, folder: Path) -> ReplayExecutable:
        """Make the executable of the loops in `folder`."""
        kernels = Kernels(folder / self.name / LIBRARY)

        def find_call(node: torch.fx.Node) -> Call:
            if not _has_loops(node):
                return find_wide_call(node)
            return Call(make_operator(node.target, kernels), tuple(_name_arguments(node).values()), {})

        # torch cannot map the loops over micro-batches, which are large enough alone
        choice = replace(request.choice, micro_batches_at_once=1)
        executable = ReplayExecutable(graph, choice, find_call=find_call)
        executable.name = self.name
        return executable


RECURRENCE = RecurrenceEngine()
"""The engine `recurrence`: it compiles in about two seconds, and its layers need no compiler in later processes."""


def list_recurrent_nodes(graph: torch.fx.Graph) -> List[torch.fx.Node]:
    """Return the recurrent layers of `graph` that have loops, also those in its loops and branches."""
    found = [node for node in graph.nodes if _has_loops(node)]
    return found + [
        inner for node in graph.nodes for body in bodies_of(node) for inner in list_recurrent_nodes(body.graph)
    ]


def _name_arguments(node: torch.fx.Node) -> Dict[str, Any]:
    target: Any = node.target
    return name_arguments(target, tuple(node.args), dict(node.kwargs))


def _has_loops(node: torch.fx.Node) -> bool:
    """Tell whether the loops compute a node: a recurrent operator on float32 tensors, without projections."""
    if node.target not in RECURRENT_OPERATORS:
        return False
    values = [used.meta.get("val") for used in node.all_input_nodes]
    are_float = all(
        isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.layout == torch.strided
        for value in values
    )
    if not are_float:
        return False
    arguments = _name_arguments(node)
    x: Any = arguments["input"].meta["val"]
    num_directions, per_layer = (2 if arguments["bidirectional"] else 1), (4 if arguments["has_biases"] else 2)
    has_usual_weights = len(arguments["params"]) == arguments["num_layers"] * num_directions * per_layer
    # a layer with a projection has a weight more, and states that are smaller than its number of units
    weight, states = arguments["params"][1].meta["val"], arguments["hx"]
    sizes = {state.meta["val"].shape[-1] for state in (states if isinstance(states, (list, tuple)) else [states])}
    return has_usual_weights and x.dim() == 3 and x.numel() > 0 and sizes == {weight.shape[1]}
