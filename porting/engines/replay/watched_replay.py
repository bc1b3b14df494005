"""The replay of a call for a watcher, which runs each operator and is told of the passes and of the updates."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...observe.watcher import (
    BackwardPass,
    ForwardResults,
    NamedValue,
    OperatorCall,
    StepState,
    WatchedOperator,
    Watcher,
)
from ..calls.call_plan import MicroBatch
from ..calls.device_state import DeviceState
from ..calls.rehearsal import Rehearsal
from .direct_calls import Call
from .replay import ReplayExecutable, read_loss_scaling
from .wide_operators import find_wide_call

__all__ = ["read_state", "watch_replay"]


def watch_replay(
    rehearsal: Rehearsal, watcher: Watcher, *, find_call: Callable[[torch.fx.Node], Call] = find_wide_call
) -> Callable[[], object]:
    """Return a function that replays a call, whose operators `watcher` runs; it uses the rehearsal up.

    `find_call` says what is called for an operator.
    """
    relay = _Relay(rehearsal, watcher)
    executable = ReplayExecutable(
        rehearsal.graph, observer=relay, watch_operator=relay.watch_operator, find_call=find_call
    )
    settings = {"groups": rehearsal.groups, "group_names": rehearsal.group_names}
    return partial(executable.run, rehearsal.state, rehearsal.inputs, rehearsal.plan, **settings)


def read_state(state: DeviceState) -> StepState:
    """Return what a device holds; of the buffers those of the first replica."""
    return StepState(state.parameters, state.buffers[0], state.slots)


class _Relay:
    """Tells a watcher what the replay engine tells of passes and updates, and of operators while `forward` runs."""

    def __init__(self, rehearsal: Rehearsal, watcher: Watcher) -> None:
        self._rehearsal, self._watcher = rehearsal, watcher
        graph = rehearsal.graph
        self._entering = {node: (info.name, info.kind) for node, info in zip(graph.placeholders, graph.entering)}
        # in a backward pass operators may run again for autograd
        self._is_forward = True

    def watch_operator(self, node: torch.fx.Node, call: Call) -> Callable[..., Any]:
        """Return a function that lets the watcher call the operator."""
        operator, function, watcher = _describe_operator(node), call.function, self._watcher
        operands = self._name_operands(call)

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._is_forward:
                return function(*args, **kwargs)
            return watcher.run_operator(OperatorCall(operator, node.name, operands, function, args, kwargs))

        return run

    def after_forward(self, results: Sequence[torch.Tensor], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Tell of the loss, the outputs and the buffers that the pass has written."""
        graph: StepGraph = self._rehearsal.graph
        held = state.buffers[micro_batch.replica]
        self._watcher.end_forward(
            ForwardResults(
                loss=results[-1] if graph.has_loss else None,
                outputs=results[: len(graph.outputs)],
                buffers={name: held[name] for name in sorted(graph.mutated_buffers)},
                has_backward=graph.has_loss and graph.loss_has_gradient,
            )
        )

    def during_backward(self, backward: Callable[[], None], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Let the watcher run the backward pass."""
        plan, scaling = self._rehearsal.plan, read_loss_scaling(state, self._rehearsal.groups)
        seed, factor = scaling * plan.backward_scale, plan.update_scale / scaling
        self._is_forward = False
        try:
            self._watcher.run_backward(BackwardPass(backward, state.parameters, seed, factor))
        finally:
            self._is_forward = True

    def after_update(self, state: DeviceState) -> None:
        """Tell of the update."""
        self._watcher.end_update(read_state(state))

    def _name_operands(self, call: Call) -> _NodeOperands:
        leaves = list(_iter_leaves((call.args, tuple(call.kwargs.values()))))
        infinite = any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves)
        return _NodeOperands(tuple(map(self._name_leaf, leaves)), infinite)

    def _name_leaf(self, leaf: object) -> Tuple[str, str]:
        return self._entering.get(leaf, (leaf.name, "")) if isinstance(leaf, torch.fx.Node) else ("", "")


class _NodeOperands(NamedTuple):
    """Name and kind of each leaf of a call's arguments, by what enters the graph or by their nodes."""

    labels: Tuple[Tuple[str, str], ...]
    names_infinity: bool

    def name_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[NamedValue]:
        """Return the tensors among the values that the operator is called with."""
        leaves = _iter_leaves((args, tuple(kwargs.values())))
        pairs = zip(self.labels, leaves)
        return [NamedValue(name, leaf, kind) for (name, kind), leaf in pairs if isinstance(leaf, torch.Tensor)]


def _describe_operator(node: torch.fx.Node) -> WatchedOperator:
    name = str(node.meta.get("operator", str(node.target)))
    return WatchedOperator(name, str(node.meta.get("module_path", "")), node.meta.get("place"))


def _iter_leaves(value: object) -> Iterator[Any]:
    """Yield what is inside of lists and tuples, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _iter_leaves(item)
    else:
        yield value
