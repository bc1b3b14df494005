"""A captured step as plain data, and back: what a file can hold of a graph, and a graph of what a file holds.

Nothing is executed on the way back: operators are looked up by name among those that torch knows, functions in a
table, and names are checked before they become part of a program.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..capture import StepGraph, TensorInfo
from ..capture.custom_gradients import run_custom_gradient
from ..capture.subgraphs import Body, run_cond, run_for_loop
from ..diagnostics import ExecutableError, Finding, Place
from ..engines.recompute.recomputation import run_segment
from ..engines.replay.strided_group_norm import strided_group_norm

__all__ = ["dtype_named", "graph_from_data", "graph_to_data"]

_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "getitem": operator.getitem,
        "set_grad_enabled": torch._C._set_grad_enabled,
        "run_for_loop": run_for_loop,
        "run_cond": run_cond,
        "run_custom_gradient": run_custom_gradient,
        "run_segment": run_segment,
        "strided_group_norm": strided_group_norm,
    }
)
_NAMES: Mapping[Any, str] = MappingProxyType({function: name for name, function in _FUNCTIONS.items()})
# Operators that reach out of the process: no capture makes them, and no file may.
_REFUSED = frozenset(["aten.from_file.default", "aten.from_file.out"])

_INFO_GROUPS = ("parameters", "buffers", "constants", "inputs", "outputs")
_PLAIN_FIELDS = ("mode", "has_loss", "loss_has_gradient", "num_losses", "host_outputs")
_SETS = ("mutated_buffers", "mutated_parameters", "mutated_inputs")
_FLAGS: Mapping[str, Any] = MappingProxyType(
    {
        str(flag): flag
        for flag in (
            torch.contiguous_format,
            torch.preserve_format,
            torch.channels_last,
            torch.channels_last_3d,
            torch.strided,
        )
    }
)


def graph_to_data(graph: StepGraph) -> Dict[str, Any]:
    """Describe `graph` in values that JSON can hold; the values of its constants are not among them.

    Raises ExecutableError E027 for a part that has no description: a function of the host, an object as an argument.
    """
    writer = _Writer()
    data: Dict[str, Any] = {"nodes": writer.nodes(graph.graph)}
    data.update({name: [_info_to_data(info) for info in getattr(graph, name)] for name in _INFO_GROUPS})
    data.update({name: getattr(graph, name) for name in _PLAIN_FIELDS})
    data.update({name: sorted(getattr(graph, name)) for name in _SETS})
    data["findings"] = [finding.to_dict() for finding in graph.findings]
    data["coercions"] = [[_dtype_name(dtype), number] for dtype, number in graph.coercions]
    data["output_structure"] = writer.structure(graph.output_structure)
    data["memories"] = writer.memories
    return data


def graph_from_data(data: Mapping[str, Any], *, constant_values: Sequence[torch.Tensor]) -> StepGraph:
    """Make the graph again that `graph_to_data` described.

    Raises KeyError, TypeError, ValueError or RuntimeError for what is no description of a graph, and ExecutableError
    E027 for an operator that this process does not have.
    """
    reader = _Reader(data["memories"])
    graph = reader.graph(data["nodes"])
    infos: Dict[str, Any] = {name: tuple(_info_from_data(info) for info in data[name]) for name in _INFO_GROUPS}
    sets: Dict[str, Any] = {name: frozenset(data[name]) for name in _SETS}
    entering = [info for name in ("parameters", "buffers", "inputs", "constants") for info in infos[name]]
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    _require(len(entering) == len(placeholders), "the placeholders are not those that are described")
    for info, node in zip(entering, placeholders):
        _require(tuple(node.meta["val"].shape) == info.shape, f"{info.name} has two shapes")
    return StepGraph(
        graph=graph,
        constant_values=tuple(constant_values),
        output_structure=reader.structure(data["output_structure"]),
        findings=tuple(_finding_from_data(finding) for finding in data["findings"]),
        coercions=tuple((dtype_named(name), int(number)) for name, number in data["coercions"]),
        **sets,
        **{name: data[name] for name in _PLAIN_FIELDS},
        **infos,
    )


def dtype_named(name: Any) -> torch.dtype:
    """Return torch's type of that name, as in "float32"; ValueError if there is none."""
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"there is no type {name!r}")
    return found


# -- to data -----------------------------------------------------------------------------------------------------------


class _Unspeakable(Exception):  # noqa: N818 - it ends the description of one value
    """Carries a value that has no description."""


class _Writer:
    """Describes nodes; the memory of their values is numbered in the order in which it is met."""

    def __init__(self) -> None:
        self.memories: List[int] = []
        self._numbers: Dict[int, int] = {}

    def nodes(self, graph: torch.fx.Graph) -> List[Dict[str, Any]]:
        return [self._node(node) for node in graph.nodes]

    def structure(self, value: Any) -> Any:
        """Describe how outputs are nested; what is no plain value is left out."""
        try:
            return self._value(value)
        except _Unspeakable:
            return None

    def _node(self, node: torch.fx.Node) -> Dict[str, Any]:
        try:
            described: Dict[str, Any] = {
                "name": node.name,
                "target": self._target(node),
                "args": [self._value(value) for value in node.args],
                "kwargs": {name: self._value(value) for name, value in node.kwargs.items()},
            }
        except _Unspeakable as unspeakable:
            raise _not_exportable(node, unspeakable.args[0]) from None
        if isinstance(node.meta.get("val"), torch.Tensor):
            described["val"] = self._tensor(node.meta["val"])
        described["meta"] = {key: text for key, text in map(self._meta, node.meta.items()) if text is not None}
        return described

    def _target(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        if node.op in ("placeholder", "output"):
            return node.op
        if isinstance(target, torch._ops.OpOverload):
            return f"op:{target}"
        if target not in _NAMES:
            raise _Unspeakable(target)
        return f"function:{_NAMES[target]}"

    def _meta(self, item: Tuple[str, Any]) -> Tuple[str, Any]:
        key, value = item
        if key == "val":
            return key, None
        try:
            return key, {"is": self._value(value)}
        except _Unspeakable:
            return key, None

    def _tensor(self, value: torch.Tensor) -> List[Any]:
        storage = value.untyped_storage()
        number = self._numbers.setdefault(storage._cdata, len(self.memories))
        if number == len(self.memories):
            self.memories.append(int(storage.nbytes()))
        return [list(value.shape), list(value.stride()), value.storage_offset(), _dtype_name(value.dtype), number]

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, torch.fx.Node):
            return {"node": value.name}
        if isinstance(value, Body):
            return {"body": self.nodes(value.graph)}
        return self._compound(value)

    def _compound(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return {"tuple" if isinstance(value, tuple) else "list": [self._value(item) for item in value]}
        if isinstance(value, Mapping):
            return {"dict": [[self._value(key), self._value(item)] for key, item in value.items()]}
        if isinstance(value, Place):
            return {"place": list(dataclasses.astuple(value))}
        if isinstance(value, torch.dtype):
            return {"dtype": _dtype_name(value)}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if str(value) in _FLAGS and _FLAGS[str(value)] is value:
            return {"flag": str(value)}
        if isinstance(value, complex):
            return {"complex": [self._value(value.real), self._value(value.imag)]}
        if isinstance(value, slice):
            return {"slice": [self._value(item) for item in (value.start, value.stop, value.step)]}
        raise _Unspeakable(value)


def _not_exportable(node: torch.fx.Node, value: Any) -> ExecutableError:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    return ExecutableError.of(
        "E027",
        message=f"`{node.meta.get('operator', node.target)}` cannot leave this process",
        place=node.meta.get("place"),
        label=f"`{name}` is Python of this program" if callable(value) else f"takes an object of type `{name}`",
        notes="a step file holds operators, shapes and numbers, so that another process needs nothing of the program",
        help="compile in the process that has the model: `to_ipu(...).compile(*batch)`",
    )


def _info_to_data(info: TensorInfo) -> Dict[str, Any]:
    data = dataclasses.asdict(info)
    data.update(dtype=_dtype_name(info.dtype), host_dtype=_dtype_name(info.host_dtype))
    return data


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


# -- from data ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Makes nodes of descriptions; values without data share memory as those described did."""

    def __init__(self, memories: Sequence[int]) -> None:
        _require(all(type(size) is int and size >= 0 for size in memories), "a memory has no size")
        self._mode = FakeTensorMode(allow_non_fake_inputs=False)
        with self._mode:
            self._storages = [torch.empty(size, dtype=torch.uint8).untyped_storage() for size in memories]

    def graph(self, nodes: Sequence[Mapping[str, Any]]) -> torch.fx.Graph:
        graph = torch.fx.Graph()
        known: Dict[str, torch.fx.Node] = {}
        for described in nodes:
            node = self._node(graph, described, known)
            _require(node.name == described["name"], f"{described['name']!r} is no name of a node")
            known[node.name] = node
        ends = [node for node in graph.nodes if node.op == "output"]
        _require(len(ends) == 1 and ends[0] is next(iter(reversed(graph.nodes))), "the graph has no end")
        _require(isinstance(ends[0].args[0], (list, tuple)), "the graph returns no list")
        return graph

    def structure(self, described: Any) -> Any:
        return self._value(described, {})

    def _node(
        self, graph: torch.fx.Graph, described: Mapping[str, Any], known: Mapping[str, torch.fx.Node]
    ) -> torch.fx.Node:
        name, text = described["name"], described["target"]
        _require(isinstance(name, str) and name.isidentifier(), f"{name!r} is no name of a node")
        args = tuple(self._value(value, known) for value in described["args"])
        kwargs = {key: self._value(value, known) for key, value in described["kwargs"].items()}
        if text in ("placeholder", "output"):
            node = graph.create_node(text, name if text == "placeholder" else "output", args, kwargs, name=name)
        else:
            target = _resolve(text, described)
            _check_keywords(target, kwargs)
            node = graph.create_node("call_function", target, args, kwargs, name=name)
        for key, value in described["meta"].items():
            node.meta[key] = self._value(value["is"], known)
        if "val" in described:
            node.meta["val"] = self._tensor(described["val"])
        return node

    def _tensor(self, described: Sequence[Any]) -> torch.Tensor:
        shape, stride, offset, dtype, number = described
        _require(type(number) is int and number >= 0, "a tensor has no memory")
        for sizes in (shape, stride, [offset]):
            _require(all(type(size) is int and size >= 0 for size in sizes), "a tensor has no shape")
        with self._mode:
            return torch.empty(0, dtype=dtype_named(dtype)).set_(self._storages[number], offset, shape, stride)

    def _value(self, described: Any, known: Mapping[str, torch.fx.Node]) -> Any:
        if not isinstance(described, dict):
            _require(not isinstance(described, list), "a list stands where a value should")
            return described
        ((kind, content),) = described.items()
        if kind == "node":
            return known[content]
        if kind == "body":
            return Body(self.graph(content))
        if kind in ("list", "tuple", "slice", "complex"):
            items = [self._value(item, known) for item in content]
            return _SEQUENCES[kind](items)
        if kind == "dict":
            return {self._value(key, known): self._value(item, known) for key, item in content}
        return _SCALARS[kind](content)


_SEQUENCES: Mapping[str, Callable[[List[Any]], Any]] = MappingProxyType(
    {
        "list": list,
        "tuple": tuple,
        "slice": lambda items: slice(*items),
        "complex": lambda items: complex(*items),
    }
)
_SCALARS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "float": float,
        "dtype": dtype_named,
        "device": torch.device,
        "flag": _FLAGS.__getitem__,
        "place": lambda parts: _place(*parts),
    }
)


def _place(file: Any, line: Any, *span: Any) -> Place:
    _require(isinstance(file, str) and type(line) is int, "a place is no place")
    _require(len(span) == 3 and all(item is None or type(item) is int for item in span), "a place is no place")
    return Place(file, line, *span)


def _resolve(text: Any, described: Mapping[str, Any]) -> Any:
    kind, _, name = str(text).partition(":")
    if kind == "function":
        return _FUNCTIONS[name]
    _require(kind == "op" and name not in _REFUSED, f"{text!r} is no operator")
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        found = None
    if not isinstance(found, torch._ops.OpOverload):
        raise _unknown_operator(name, described)
    return found


def _unknown_operator(name: str, described: Mapping[str, Any]) -> ExecutableError:
    place = described["meta"].get("place", {}).get("is")
    return ExecutableError.of(
        "E027",
        message=f"this process has no operator `{name}`",
        place=_place(*place["place"]) if place else None,
        notes="the step was captured where a library had registered it",
        help="load that library in this process too, or compile where the model is",
    )


def _check_keywords(target: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse keywords that the target does not have: they become part of a program."""
    if isinstance(target, torch._ops.OpOverload):
        allowed = {argument.name for argument in target._schema.arguments}
        _require(set(kwargs) <= allowed, f"{target} has other arguments")
    else:
        _require(not kwargs, f"{target} takes no arguments by name")


def _info_from_data(data: Mapping[str, Any]) -> TensorInfo:
    values = dict(data)
    values.update(
        shape=tuple(int(size) for size in data["shape"]),
        dtype=dtype_named(data["dtype"]),
        host_dtype=dtype_named(data["host_dtype"]),
        aliases=tuple(data["aliases"]),
    )
    return TensorInfo(**values)


def _finding_from_data(data: Mapping[str, Any]) -> Finding:
    place: Optional[Mapping[str, Any]] = data["place"]
    lines: Iterable[str] = data["notes"]
    return Finding(
        data["code"],
        data["message"],
        place=_place(*place.values()) if place is not None else None,
        label=data["label"],
        notes=tuple(lines),
        help=tuple(data["help"]),
        severity=data["severity"],
    )


def _require(is_so: bool, fault: str) -> None:
    if not is_so:
        raise ValueError(fault)
