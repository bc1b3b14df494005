"""A graph as plain data, and back: what a file can hold of a captured step, or of any graph of operators.

Nothing is executed on the way back: operators are looked up by name among those that torch knows, functions in a
table, and names are checked before they become part of a program.
"""

from __future__ import annotations

import dataclasses
import keyword
import operator
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence

import torch

from ..diagnostics import ExecutableError, Finding
from ..torch_insides.fake_tensors import FakeTensorMode
from ..torch_insides.operators import SET_GRAD_ENABLED, OpOverload, read_schema
from .graph_flow import identify_memory
from .plain_values import UndescribableError, dtype_name, dtype_named, place_from_data, value_from_data, value_to_data
from .step_graph import MUTATED, StepGraph, TensorInfo
from .subgraphs import Body, run_cond, run_custom_gradient, run_for_loop

__all__ = ["STEP_FUNCTIONS", "Functions", "graph_from_data", "graph_to_data", "nodes_from_data", "nodes_to_data"]

Functions = Mapping[str, Callable[..., Any]]
"""Functions that a graph may call besides operators, by the names that they have in data."""

STEP_FUNCTIONS: Functions = {
    "getitem": operator.getitem,
    "set_grad_enabled": SET_GRAD_ENABLED,
    "run_for_loop": run_for_loop,
    "run_cond": run_cond,
    "run_custom_gradient": run_custom_gradient,
}
"""Those that a capture records."""

# Operators that reach out of the process: no capture makes them, and no file may.
_REFUSED = frozenset(["aten::from_file", "aten::_from_file"])

_INFO_GROUPS = ("parameters", "buffers", "constants", "inputs", "outputs")
_PLAIN_FIELDS = ("mode", "has_loss", "loss_has_gradient", "num_losses", "host_outputs")
_DTYPES = ("dtype", "host_dtype")


def nodes_to_data(graph: torch.fx.Graph, *, functions: Functions) -> List[Dict[str, Any]]:
    """Describe the nodes of `graph` in values that JSON can hold; what is known of their values is left out.

    Raises UndescribableError for an argument without a description, or a function that is not among `functions`.
    """
    return _Writer(functions, with_facts=False).describe_nodes(graph)


def nodes_from_data(
    nodes: Sequence[Mapping[str, Any]], *, functions: Functions, constants: Collection[str] = ()
) -> torch.fx.Graph:
    """Make the graph again that `nodes_to_data` described; `constants` are attributes that it may read.

    Raises as `graph_from_data`.
    """
    return _Reader(functions, constants=constants).make_graph(nodes)


def graph_to_data(graph: StepGraph, *, functions: Functions = STEP_FUNCTIONS) -> Dict[str, Any]:
    """Describe `graph` in values that JSON can hold; the values of its constants are not among them.

    Raises ExecutableError E027 for a part that has no description: a function of the host, an object as an argument.
    """
    writer = _Writer(functions)
    try:
        data: Dict[str, Any] = {"nodes": writer.describe_nodes(graph.graph)}
    except UndescribableError as error:
        node, value = error.node, error.value
        name = getattr(value, "__qualname__", None) or type(value).__name__
        raise ExecutableError.of(
            "E027",
            message=f"`{node.meta.get('operator', node.target)}` cannot leave this process",
            place=node.meta.get("place"),
            label=f"`{name}` is Python of this program" if callable(value) else f"takes an object of type `{name}`",
            notes="a step file holds operators, shapes and numbers, so that another process needs nothing of the "
            "program",
            help="compile in the process that has the model: `to_ipu(...).compile(*batch)`",
        ) from None
    for group in _INFO_GROUPS:
        data[group] = [
            {**dataclasses.asdict(info), **{name: dtype_name(getattr(info, name)) for name in _DTYPES}}
            for info in getattr(graph, group)
        ]
    data.update({name: getattr(graph, name) for name in _PLAIN_FIELDS})
    data.update({name: sorted(getattr(graph, name)) for name in MUTATED})
    data["findings"] = [finding.to_dict() for finding in graph.findings]
    data["coercions"] = [[dtype_name(dtype), number] for dtype, number in graph.coercions]
    data["output_structure"] = writer.describe_structure(graph.output_structure)
    data["memories"] = writer.memories
    return data


def graph_from_data(
    data: Mapping[str, Any], *, constant_values: Sequence[torch.Tensor], functions: Functions = STEP_FUNCTIONS
) -> StepGraph:
    """Make the graph again that `graph_to_data` described.

    Raises AttributeError, LookupError, TypeError, ValueError or RuntimeError for what is no description of a graph,
    and ExecutableError E027 for an operator that this process does not have.
    """
    reader = _Reader(functions, memories=data["memories"])
    graph = reader.make_graph(data["nodes"])
    infos: Dict[str, Any] = {name: tuple(_info_from_data(info) for info in data[name]) for name in _INFO_GROUPS}
    sets: Dict[str, Any] = {name: frozenset(data[name]) for name in MUTATED}
    step = StepGraph(
        graph=graph,
        constant_values=tuple(constant_values),
        output_structure=reader.make_value(data["output_structure"], {}),
        findings=tuple(_finding_from_data(finding) for finding in data["findings"]),
        coercions=tuple((dtype_named(name), int(number)) for name, number in data["coercions"]),
        **sets,
        **{name: data[name] for name in _PLAIN_FIELDS},
        **infos,
    )
    _require_fact(len(step.entering) == len(step.placeholders), "the placeholders are not those that are described")
    # both are believed later: the shapes by programs, the nodes by replay
    for info, node in zip(step.entering, step.placeholders):
        _require_fact(tuple(node.meta["val"].shape) == info.shape, f"{info.name} has two shapes")
    return step


# -- to data -----------------------------------------------------------------------------------------------------------


class _Writer:
    """Describes nodes; the memory of their values is numbered in the order in which it is met."""

    def __init__(self, functions: Functions, *, with_facts: bool = True) -> None:
        self.memories: List[int] = []
        self._numbers: Dict[int, int] = {}
        self._names = {function: name for name, function in functions.items()}
        self._with_facts = with_facts

    def describe_nodes(self, graph: torch.fx.Graph) -> List[Dict[str, Any]]:
        return list(map(self._describe_node, graph.nodes))

    def describe_structure(self, value: object) -> Any:
        """Describe how outputs are nested; what is no plain value is left out."""
        try:
            return self._describe_value(value)
        except UndescribableError:
            return None

    def _describe_node(self, node: torch.fx.Node) -> Dict[str, Any]:
        try:
            described: Dict[str, Any] = {
                "name": node.name,
                "target": self._name_target(node),
                "args": [self._describe_value(value) for value in node.args],
                "kwargs": {name: self._describe_value(value) for name, value in node.kwargs.items()},
            }
        except UndescribableError as error:
            raise UndescribableError(error.value, error.node or node) from None
        return {**described, **self._describe_facts(node)} if self._with_facts else described

    def _name_target(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        if node.op in ("placeholder", "output"):
            return node.op
        if node.op == "get_attr":
            return f"constant:{target}"
        if isinstance(target, OpOverload):
            return f"op:{target}"
        if node.op != "call_function" or target not in self._names:
            raise UndescribableError(target)
        return f"function:{self._names[target]}"

    def _describe_value(self, value: object) -> Any:
        def describe_other(other: object) -> Any:
            if isinstance(other, torch.fx.Node):
                return {"node": other.name}
            if isinstance(other, Body):
                return {"body": self.describe_nodes(other.graph)}
            raise UndescribableError(other)

        return value_to_data(value, describe_other)

    def _describe_facts(self, node: torch.fx.Node) -> Dict[str, Any]:
        """Describe the value of a node and what else is known of it, as far as that can be described."""
        described = {key: self.describe_structure(value) for key, value in node.meta.items() if key != "val"}
        meta = {key: {"is": data} for key, data in described.items() if data is not None or node.meta[key] is None}
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return {"meta": meta}
        # views are known by the memory that they share, and sizes of memory are all that is kept of it
        number = self._numbers.setdefault(identify_memory(value), len(self.memories))
        if number == len(self.memories):
            self.memories.append(int(value.untyped_storage().nbytes()))
        layout = [list(value.shape), list(value.stride()), value.storage_offset()]
        return {"val": [*layout, dtype_name(value.dtype), number], "meta": meta}


# -- from data ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Makes nodes of descriptions; values without data share memory as those described did."""

    def __init__(self, functions: Functions, *, memories: Sequence[int] = (), constants: Collection[str] = ()) -> None:
        _require_fact(all(type(size) is int and size >= 0 for size in memories), "a memory has no size")
        self._functions = functions
        self._constants = frozenset(constants)
        self._mode = FakeTensorMode(allow_non_fake_inputs=False)
        with self._mode:
            self._storages = [torch.empty(size, dtype=torch.uint8).untyped_storage() for size in memories]

    def make_graph(self, nodes: Sequence[Mapping[str, Any]]) -> torch.fx.Graph:
        graph = torch.fx.Graph()
        known: Dict[str, torch.fx.Node] = {}
        for described in nodes:
            node = self._make_node(graph, described, known)
            # fx gives a name that is taken, or that Python reserves, another form
            _require_fact(node.name == described["name"], f"{described['name']!r} is no name of a node")
            known[node.name] = node
        # replay takes the last node's arguments for the results without looking
        ends = [node for node in graph.nodes if node.op == "output"]
        _require_fact(len(ends) == 1 and ends[0] is next(iter(reversed(graph.nodes))), "the graph has no end")
        _require_fact(isinstance(ends[0].args[0], (list, tuple)), "the graph returns no list")
        return graph

    def _make_node(
        self, graph: torch.fx.Graph, described: Mapping[str, Any], known: Mapping[str, torch.fx.Node]
    ) -> torch.fx.Node:
        name, text = described["name"], described["target"]
        _require_name(name)
        args = tuple(self.make_value(value, known) for value in described["args"])
        kwargs = {key: self.make_value(value, known) for key, value in described["kwargs"].items()}
        if text in ("placeholder", "output"):
            _require_fact(
                len(args) == (text == "output") and not kwargs, f"{name!r} has arguments of another kind of node"
            )
            node = graph.create_node(text, name if text == "placeholder" else "output", args, kwargs, name=name)
        elif str(text).startswith("constant:"):
            constant = text.partition(":")[2]
            _require_name(constant)
            _require_fact(constant in self._constants and not args and not kwargs, f"there is no constant {constant!r}")
            node = graph.create_node("get_attr", constant, name=name)
        else:
            target = self._find_target(text, described)
            # keywords become part of a program, so that the target must have them
            if isinstance(target, OpOverload):
                allowed = {argument.name for argument in read_schema(target).arguments}
                _require_fact(set(kwargs) <= allowed, f"{target} has other arguments")
            else:
                _require_fact(not kwargs, f"{target} takes no arguments by name")
            node = graph.create_node("call_function", target, args, kwargs, name=name)
        for key, value in described.get("meta", {}).items():
            node.meta[key] = self.make_value(value["is"], known)
        if "val" in described:
            node.meta["val"] = self._make_tensor(described["val"])
        return node

    def _make_tensor(self, described: Sequence[Any]) -> torch.Tensor:
        shape, stride, offset, dtype, number = described
        _require_fact(type(number) is int and number >= 0, "a tensor has no memory")
        for sizes in (shape, stride, [offset]):
            _require_fact(all(type(size) is int and size >= 0 for size in sizes), "a tensor has no shape")
        with self._mode:
            return torch.empty(0, dtype=dtype_named(dtype)).set_(self._storages[number], offset, shape, stride)

    def make_value(self, described: Any, known: Mapping[str, torch.fx.Node]) -> Any:
        # whatever else a file may name is refused: nothing in it is executed
        def read_other(kind: str, content: Any) -> Any:
            if kind == "body":
                return Body(self.make_graph(content))
            _require_fact(kind == "node", f"{kind!r} is no kind of value")
            return known[content]

        return value_from_data(described, read_other)

    def _find_target(self, text: str, described: Mapping[str, Any]) -> Any:
        kind, _, name = str(text).partition(":")
        if kind == "function":
            return self._functions[name]
        parts = name.split(".")
        is_name = len(parts) == 3 and all(part.isidentifier() for part in parts)
        _require_fact(kind == "op" and is_name, f"{text!r} is no operator")
        try:
            found = getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
        except AttributeError:
            found = None
        if not isinstance(found, OpOverload):
            place = described.get("meta", {}).get("place", {}).get("is")
            raise ExecutableError.of(
                "E027",
                message=f"this process has no operator `{name}`",
                place=place_from_data(place["place"]) if place else None,
                notes="the step was captured where a library had registered it",
                help="load that library in this process too, or compile where the model is",
            )
        _require_fact(read_schema(found).name not in _REFUSED, f"{text!r} is no operator of a graph")
        return found


def _require_name(name: object) -> None:
    """Refuse what may not become part of a program: fx writes graphs as Python source."""
    is_name = isinstance(name, str) and name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    _require_fact(is_name, f"{name!r} is no name of a node")


def _info_from_data(data: Mapping[str, Any]) -> TensorInfo:
    dtypes = {name: dtype_named(data[name]) for name in _DTYPES}
    return TensorInfo(**{**data, **dtypes, "shape": tuple(map(int, data["shape"])), "aliases": tuple(data["aliases"])})


def _finding_from_data(data: Mapping[str, Any]) -> Finding:
    place: Optional[Mapping[str, Any]] = data["place"]
    texts = {name: data[name] for name in ("code", "message", "label", "notes", "help", "severity")}
    return Finding(**texts, place=place_from_data(place.values()) if place is not None else None)


def _require_fact(is_so: bool, fault: str) -> None:
    if not is_so:
        raise ValueError(fault)
