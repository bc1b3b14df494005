"""The identity of a captured step: plain values that are equal for equal steps, in every process.

Nodes are numbered instead of named, arguments have the names of the operator's schema, and constants are hashes.
Places and module paths are no part of it, nor is where in memory a value lies.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ..torch_insides.operators import OpOverload, read_schema
from .device_operators import device_operator
from .plain_values import dtype_name, value_to_data
from .step_graph import MUTATED, StepGraph, TensorInfo
from .subgraphs import Body

__all__ = ["GraphIdentity", "identify_graph"]

# Modules whose functions are known by their name.
_KNOWN_MODULES = ("porting", "torch", "_operator", "math", "builtins")

# Operators of these libraries are what their name says, in each version of torch.
_KNOWN_LIBRARIES = ("aten", "prims", "prim", "torchvision")

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class GraphIdentity:
    """What makes a step what it is, and what explains that to people.

    `graph` has its operators, each `[name, {argument: value}]`, and its facts; `tensors` what enters and leaves it;
    `constants` a hash, shape and type of each. A value of the graph is `{"%": number}`; arguments that enter the graph
    come first.

    The rest is no part of the identity. `places` and `modules` belong to the operators, in the same order; `defaults`
    are the values of arguments that are not given, by operator. `opaque` names values that cannot be written down.
    `has_foreign` says whether there are operators of a library that may be another one tomorrow.
    """

    graph: Dict[str, Any]
    tensors: Dict[str, List[Any]]
    constants: List[Any]
    places: List[Optional[List[Any]]]
    modules: List[str]
    defaults: Dict[str, Dict[str, Any]]
    opaque: Tuple[str, ...]
    has_foreign: bool


def identify_graph(graph: StepGraph, *, opaque_mark: str = "") -> GraphIdentity:
    """Write down what makes `graph` what it is.

    A value that has no description, such as a function of the user's, stands there with its name and `opaque_mark`: a
    mark that no other call has makes sure that such a graph equals no other one.
    """
    writer = _Writer(opaque_mark)
    operators, results = writer.describe_operators(graph.graph)
    facts = {name: getattr(graph, name) for name in ("mode", "has_loss", "loss_has_gradient")}
    # sets have another order in each process
    mutated = {name: sorted(getattr(graph, name)) for name in MUTATED}
    return GraphIdentity(
        graph={**facts, "operators": operators, "results": results, **mutated},
        tensors=_describe_tensors(graph),
        constants=[
            [_hash_values(value), list(value.shape), dtype_name(value.dtype)] for value in graph.constant_values
        ],
        places=writer.places,
        modules=writer.modules,
        defaults=writer.defaults,
        opaque=tuple(writer.opaque),
        has_foreign=writer.has_foreign,
    )


class _Writer:
    """Writes operators as plain values, and what explains them in the same order."""

    def __init__(self, opaque_mark: str) -> None:
        self.places: List[Optional[List[Any]]] = []
        self.modules: List[str] = []
        self.defaults: Dict[str, Dict[str, Any]] = {}
        self.opaque: List[str] = []
        self.has_foreign = False
        self._opaque_mark = opaque_mark

    def describe_operators(self, graph: torch.fx.Graph, *, is_body: bool = False) -> Tuple[List[Any], Any]:
        """Return the operators of a graph, and its results."""
        # names of nodes depend on what else was captured in the process
        numbers = {node: number for number, node in enumerate(graph.nodes)}
        operators, results = [], None
        for node in graph.nodes:
            if node.op == "output":
                results = self._describe_value(node.args, numbers)
            elif node.op != "placeholder":
                name, names = self._name_operator(node.target)
                given = [(names[i] if i < len(names) else str(i), value) for i, value in enumerate(node.args)]
                arguments = dict(given, **node.kwargs)
                operators.append([name, {key: self._describe_value(arguments[key], numbers) for key in arguments}])
                if not is_body:
                    place = node.meta.get("place")
                    self.places.append([place.file, place.line] if place is not None else None)
                    self.modules.append(node.meta.get("module_path", ""))
        return operators, results

    def _name_operator(self, target: object) -> Tuple[str, Tuple[str, ...]]:
        """Return the name of an operator and those of its arguments."""
        if not isinstance(target, OpOverload):
            return (target if isinstance(target, str) else self._name_function(target)), ()
        name, names, defaults = _read_schema(target)
        # the same name may compute something else when the user's library is built again
        if target.namespace not in _KNOWN_LIBRARIES and device_operator(target) is None:
            self.has_foreign = True
        self.defaults[name] = defaults
        return name, names

    def _name_function(self, function: object) -> str:
        # in C++, where its module has another name
        if function is operator.getitem:
            return "getitem"
        module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
        if module.split(".")[0] not in _KNOWN_MODULES or not name or "<" in name:
            return self._mark_opaque(function)
        return f"{module}.{name}"

    def _describe_value(self, value: object, numbers: Mapping[torch.fx.Node, int]) -> Any:
        def describe_other(other: object) -> Any:
            if isinstance(other, torch.fx.Node):
                return {"%": numbers[other]}
            if isinstance(other, Body):
                operators, results = self.describe_operators(other.graph, is_body=True)
                inputs = [_describe_layout(node.meta["val"]) for node in other.graph.nodes if node.op == "placeholder"]
                return {"inputs": inputs, "operators": operators, "results": results}
            if isinstance(other, torch.Tensor):
                return {"value": [*_describe_layout(other), _hash_values(other)]}
            return other if isinstance(other, _PLAIN) else self._mark_opaque(other)

        return value_to_data(value, describe_other, tells_sequences_apart=False)

    def _mark_opaque(self, value: object) -> str:
        """Note a value that cannot be written down: only this process knows what it computes."""
        kind = type(value)
        name = getattr(value, "__qualname__", "") or kind.__qualname__
        self.opaque.append(f"{getattr(value, '__module__', None) or kind.__module__}.{name}")
        return f"<{self.opaque[-1]} {self._opaque_mark}>" if self._opaque_mark else f"<{self.opaque[-1]}>"


@functools.lru_cache(maxsize=None)
def _read_schema(target: object) -> Tuple[str, Tuple[str, ...], Dict[str, Any]]:
    """Return the name of an operator, those of its arguments, and the plain values that these have by default."""
    arguments = read_schema(target).arguments
    given = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    defaults = {name: value for name, value in given.items() if _is_plain(value)}
    return str(target), tuple(argument.name for argument in arguments), defaults


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, _PLAIN)


def _describe_tensors(graph: StepGraph) -> Dict[str, List[Any]]:
    """Write down names, shapes, strides and types of what enters the graph and leaves it."""
    layouts = (_describe_layout(node.meta["val"]) for node in graph.placeholders)
    named: Dict[str, List[Any]] = {}
    # each kind takes as many layouts as it has tensors, and constants, which have no names of their own, the rest
    for kind in ("parameters", "buffers", "inputs"):
        infos: Sequence[TensorInfo] = getattr(graph, kind)
        named[kind] = [[info.name, *layout, info.requires_grad] for info, layout in zip(infos, layouts)]
    named["constants"] = list(layouts)
    named["outputs"] = [[list(info.shape), dtype_name(info.dtype)] for info in graph.outputs]
    return named


def _describe_layout(value: torch.Tensor) -> List[Any]:
    strides = list(value.stride()) if value.layout == torch.strided else str(value.layout)
    return [list(value.shape), strides, dtype_name(value.dtype)]


def _hash_values(value: torch.Tensor) -> str:
    # the bytes, so that zeros of both signs and all kinds of NaN are told apart
    flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    content: Any = flat.view(torch.uint8).numpy()
    return hashlib.sha256(content).hexdigest()[:32]
