"""A graph as one plain Python function: a line for each operator, which knows the user's line it comes from."""

from __future__ import annotations

import itertools
import linecache
import math
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from ...capture.subgraphs import Body
from ...diagnostics import Place
from .direct_calls import Call, find_direct_call

__all__ = ["GraphFunction", "WatchOperator"]

WatchOperator = Callable[[torch.fx.Node, Call], Callable[..., Any]]
"""Returns what is called for a node instead of its call's function, with the same arguments."""

# tracebacks find the text by the file's name, so no two graphs may share one
_numbers = itertools.count()


class GraphFunction:
    """`graph` as a function of its placeholders that returns the tuple of its outputs.

    Operators are bound to short names when the function is made, so that a call looks nothing up, and intermediate
    values are let go after their last use. The bodies of loops and branches are functions of their own. With `watch`
    each operator is called through what that returns for it.
    """

    def __init__(
        self,
        graph: torch.fx.Graph,
        *,
        watch: Optional[WatchOperator] = None,
        find_call: Callable[[torch.fx.Node], Call] = find_direct_call,
    ) -> None:
        """Write and compile the source; no value is computed. `find_call` says what is called for a node."""
        self._watch = watch
        self._find_call = find_call
        self._names: Dict[str, Any] = {}
        self._taken = {node.name for node in graph.nodes}
        self._counter = itertools.count()
        self._bodies: List[GraphFunction] = []
        self._lines: List[Tuple[str, Optional[torch.fx.Node]]] = []
        self._write_graph(graph)
        self._file = f"<porting graph {next(_numbers)}>"
        source = "\n".join(text for text, _node in self._lines) + "\n"
        linecache.cache[self._file] = (len(source), None, source.splitlines(True), self._file)  # for tracebacks
        # the cache outlives the graph, and a program may make thousands
        weakref.finalize(self, linecache.cache.pop, self._file, None)
        # Generated code instead of a loop over nodes: a name in a frame is an array slot, and the loop would look up
        # each operand in a dictionary.
        exec(compile(source, self._file, "exec"), self._names)
        self.call: Callable[..., Tuple[torch.Tensor, ...]] = self._names["forward"]

    @property
    def source(self) -> str:
        """The text of the function."""
        return "\n".join(text for text, _node in self._lines)

    def find_place(self, traceback: Optional[TracebackType]) -> Optional[Place]:
        """Return the user's line of the operator that an error's traceback went through, or None."""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self._file:
                node = self._lines[traceback.tb_lineno - 1][1]
                own = None if node is None else node.meta.get("place")
                inner = (body.find_place(traceback.tb_next) for body in self._bodies)
                return next((place for place in inner if place is not None), own)
            traceback = traceback.tb_next
        return None

    def _write_graph(self, graph: torch.fx.Graph) -> None:
        released = _collect_last_uses(graph)
        parameters = [node.name for node in graph.nodes if node.op == "placeholder"]
        self._lines.append((f"def forward({', '.join(parameters)}):", None))
        for node in graph.nodes:
            if node.op == "call_function":
                direct = self._find_call(node)
                function, args, kwargs = direct
                if self._watch is not None:
                    function = self._watch(node, direct)
                arguments = [self._write_expression(argument) for argument in args]
                arguments += [f"{name}={self._write_expression(value)}" for name, value in kwargs.items()]
                call = f"    {node.name} = {self._bind_name(function)}({', '.join(arguments)})"
                unused = released.get(node, [])
                # Freed on the same line, as Python frees a temporary: memory peaks where the eager program's does.
                self._lines.append((call + "".join(f"; del {name}" for name in unused), node))
            elif node.op == "output":
                self._lines.append((f"    return {self._write_expression(tuple(node.args[0]))}", None))

    def _write_expression(self, value: object) -> str:
        if isinstance(value, torch.fx.Node):
            return value.name
        if isinstance(value, tuple):
            return "(" + "".join(f"{self._write_expression(item)}, " for item in value) + ")"
        if isinstance(value, list):
            return "[" + ", ".join(self._write_expression(item) for item in value) + "]"
        # What has a text that reads back as itself is written out; all else is bound to a name.
        is_plain = value is None or isinstance(value, (bool, int, str))
        if is_plain or (isinstance(value, float) and math.isfinite(value)):
            return repr(value)
        if isinstance(value, Body):
            self._bodies.append(GraphFunction(value.graph, watch=self._watch, find_call=self._find_call))
            return self._bind_name(self._bodies[-1].call)
        return self._bind_name(value)

    def _bind_name(self, value: object) -> str:
        while True:
            name = f"_{next(self._counter)}"
            # a node of the graph may be called like that, too
            if name not in self._taken:
                self._names[name] = value
                return name


def _collect_last_uses(graph: torch.fx.Graph) -> Dict[torch.fx.Node, List[str]]:
    """Name, for each node, the intermediate values that nothing uses after it."""
    released: Dict[torch.fx.Node, List[str]] = {}
    seen: Set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        for used in (node, *node.all_input_nodes) if node.op == "call_function" else node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                if node.op == "call_function" and used.op == "call_function":
                    released.setdefault(node, []).append(used.name)
    return released
