"""Bodies of loops and branches while they are recorded, each into a graph of its own.

A body takes its inputs by value. Tensors of the graph around it that it reads become further arguments, found while
the body is recorded; writing to one is refused in a loop, and changes a copy in a branch.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Protocol, Sequence, Set, Tuple

import torch

from ...diagnostics import Place, caller_place
from ...torch_insides.operators import OpOverload
from ..device_tensor import DeviceTensor
from ..errors import Refusal
from ..graph_flow import identify_memory
from ..subgraphs import Body

__all__ = ["Bodies", "GraphInProgress"]

aten = torch.ops.aten


class GraphInProgress(Protocol):
    """The graph that operators are recorded into; opening a body exchanges it for another one."""

    graph: torch.fx.Graph
    first_operator: Optional[torch.fx.Node]

    def call(self, func: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Record an operator and return its results."""


@dataclass
class _Frame:
    """A body under recording, and what the recorder goes back to when it ends."""

    kind: str
    place: Optional[Place]
    graph: torch.fx.Graph
    outer_graph: torch.fx.Graph
    outer_first_operator: Optional[torch.fx.Node]
    copies_captured: bool
    beside: object = None
    local: Dict[torch.fx.Node, torch.fx.Node] = field(default_factory=dict)
    captured: List[torch.fx.Node] = field(default_factory=list)
    captured_memory: Dict[int, List[torch.fx.Node]] = field(default_factory=dict)
    written_memory: Set[int] = field(default_factory=set)


class Bodies:
    """The bodies that `recorder` is in the middle of, innermost last; it records into the innermost."""

    def __init__(self, recorder: GraphInProgress) -> None:
        """Begin outside all bodies."""
        self._recorder = recorder
        self._root = recorder.graph
        self._frames: List[_Frame] = []

    @property
    def kinds(self) -> Tuple[str, ...]:
        """What each open body belongs to: "for_loop", "then" or "else"."""
        return tuple(frame.kind for frame in self._frames)

    @property
    def beside(self) -> Any:
        """What the innermost body was opened beside."""
        return self._frames[-1].beside

    def open(
        self, kind: str, *, inputs: Sequence[DeviceTensor] = (), copies_captured: bool = False, beside: object = None
    ) -> None:
        """Record from now on into a new body, in which `inputs` stand for its arguments.

        Writing to another tensor of the graph around it changes a copy if `copies_captured`, and else is refused.
        `beside` is kept with the body: what came before it and belongs to the same operator.
        """
        recorder = self._recorder
        frame = _Frame(
            kind, caller_place(), torch.fx.Graph(), recorder.graph, recorder.first_operator, copies_captured, beside
        )
        self._frames.append(frame)
        recorder.graph, recorder.first_operator = frame.graph, None
        for number, tensor in enumerate(inputs):
            node = frame.graph.placeholder(f"input_{number}")
            node.meta.update(val=tensor.fake, kind="input", state_name=node.name)
            frame.local[tensor.node] = node

    def close(self, outputs: Sequence[DeviceTensor]) -> Tuple[Body, Tuple[torch.fx.Node, ...]]:
        """End the innermost body, which returns `outputs`, each as memory of its own.

        Returns the body and the nodes around it that it takes besides its inputs.
        """
        frame = self._frames[-1]
        returned: Set[int] = set()
        nodes = []
        for tensor in outputs:
            node, memory = self.local_node(tensor), identify_memory(tensor.fake)
            # what a body returns may be its argument next time, and must not be the memory of another one then
            if memory in returned or memory in frame.captured_memory or not tensor.fake.is_contiguous():
                copy = self._recorder.call(aten.clone.default, tensor, memory_format=torch.contiguous_format)
                node = copy.node
            returned.add(memory)
            nodes.append(node)
        frame.graph.output(tuple(nodes))
        self._copy_written(frame)
        self.abandon(len(self._frames) - 1)
        return Body(frame.graph), tuple(frame.captured)

    def abandon(self, depth: int) -> None:
        """Forget the bodies inside the outermost `depth`, which an exception has left."""
        while len(self._frames) > depth:
            frame = self._frames.pop()
            self._recorder.graph, self._recorder.first_operator = frame.outer_graph, frame.outer_first_operator

    def local_node(self, tensor: DeviceTensor) -> torch.fx.Node:
        """Return the node of `tensor` in the graph that is being recorded, as an argument of bodies where needed.

        Raises CaptureError C018 for a tensor of a body that has ended.
        """
        # by far the most usual case, asked for every argument
        if not self._frames and tensor.node.graph is self._root:
            return tensor.node
        return self._find_node_at(len(self._frames), tensor.node)

    def own_writes(self, written: Sequence[DeviceTensor]) -> List[DeviceTensor]:
        """Return those of `written` that belong to the innermost graph; the others must be allowed to change a copy.

        Raises CaptureError C018 where they are not.
        """
        if not self._frames:
            return list(written)
        frame, own = self._frames[-1], []
        for tensor in written:
            memory = identify_memory(tensor.fake)
            if memory not in frame.captured_memory:
                own.append(tensor)
            elif frame.copies_captured:
                # which tensors need copies is only known when the branch has ended: its operators are changed then
                frame.written_memory.add(memory)
            else:
                raise Refusal.WRITE_AROUND_BODY.error(kind=frame.kind)
        return own

    @contextmanager
    def at_root(self) -> Iterator[None]:
        """Record into the graph outside all bodies while the context lasts."""
        recorder = self._recorder
        inner = recorder.graph, recorder.first_operator
        # a constant is an argument of the whole graph, whichever body meets it first
        if self._frames:
            recorder.graph, recorder.first_operator = self._root, self._frames[0].outer_first_operator
        try:
            yield
        finally:
            recorder.graph, recorder.first_operator = inner

    def refuse_open(self) -> None:
        """Raise CaptureError C018 for a body that nothing ended."""
        if self._frames:
            frame = self._frames[-1]
            raise Refusal.OPEN_BODY.error_at(frame.place, kind=frame.kind)

    def _find_node_at(self, depth: int, node: torch.fx.Node) -> torch.fx.Node:
        if depth == 0:
            if node.graph is self._root:
                return node
            raise Refusal.ENDED_BODY.error()
        frame = self._frames[depth - 1]
        if node.graph is frame.graph:
            return node
        if node not in frame.local:
            # a body gets what it reads from the one around it, which may have to get it from further out
            outer = self._find_node_at(depth - 1, node)
            inner_frame = self._frames[depth] if depth < len(self._frames) else None
            first = inner_frame.outer_first_operator if inner_frame else self._recorder.first_operator
            # captured values become arguments, which come before the operators that were recorded already
            with frame.graph.inserting_before(first) if first is not None else nullcontext():
                inner = frame.graph.placeholder(f"captured_{len(frame.captured)}")
            inner.meta.update(val=node.meta["val"], kind="captured", state_name=inner.name)
            frame.captured.append(outer)
            frame.captured_memory.setdefault(identify_memory(node.meta["val"]), []).append(inner)
            frame.local[node] = inner
        return frame.local[node]

    def _copy_written(self, frame: _Frame) -> None:
        """Let a branch that writes to tensors around it work on copies of them."""
        first = self._recorder.first_operator
        assert first is not None or not frame.written_memory
        # the branch that is not taken must leave no trace, so the one that is taken changes a copy
        for memory in frame.written_memory:
            if len(frame.captured_memory[memory]) > 1:
                raise Refusal.ALIASED_WRITE.error_at(frame.place, kind=frame.kind)
            (captured,) = frame.captured_memory[memory]
            with frame.graph.inserting_before(first):
                copy = frame.graph.call_function(aten.clone.default, (captured,))
            copy.meta.update(captured.meta, module_path="", place=frame.place)
            captured.replace_all_uses_with(copy)
            # the copy itself was one of the users
            copy.args = (captured,)
