"""What an executable depends on, written down as plain values that are the same in every process.

Sections of the components: `graph` (operators with all arguments, bodies of loops, results), `tensors` (what enters and
leaves it), `constants` (their values, hashed), `plan`, `optimizer` (its structure; numbers such as the learning rate
are arguments of the programs), `engine`, `versions`, `processor`, `precision`, `threads`, `extra`. Section `explained`
is no part of the identity: places and module paths of the operators, values that their arguments have by default, the
optimizer's numbers, the values of small constants.
"""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import os
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ..capture import StepGraph, TensorInfo
from ..capture.device_operators import device_operator
from ..capture.subgraphs import Body
from ..engines.calls.call_plan import CallPlan, ReplicaGroups
from ..engines.calls.executable import BuildRequest
from ..engines.update.traced_updates import update_structure
from .identity import EXPLAINED, ExecutableKey
from .machine import compiler, compiler_settings, processor, versions

__all__ = ["ExecutableKey", "executable_key"]

_PLAIN = (bool, int, float, str, type(None))
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)

# Modules whose functions are known by their name.
_KNOWN_MODULES = ("porting", "torch", "_operator", "math", "builtins")

# Operators of these libraries are what their name says, in each version of torch.
_KNOWN_LIBRARIES = ("aten", "prims", "prim", "torchvision")

# So many elements of a constant are shown when it changes.
_MAX_SHOWN = 4

_schemas: Dict[Any, Tuple[str, Tuple[str, ...], Dict[str, Any]]] = {}


def executable_key(
    graph: StepGraph,
    request: BuildRequest,
    *,
    engine: str,
    extra: Optional[Mapping[str, Any]] = None,
    model: str = "",
) -> ExecutableKey:
    """Return the key of the executable of `graph` for `request`, as `engine` was asked for by name.

    `extra` are further plain values that it depends on. `model` is the name of the model's class, which explains and is
    no part of the identity; nor are the places of operators, so that moving a line finds the same executable.
    """
    writer = _GraphWriter()
    components: Dict[str, Any] = {
        "graph": _graph(graph, writer),
        "tensors": _tensors(graph),
        "constants": [[_hash(value), list(value.shape), _name(value.dtype)] for value in graph.constant_values],
        "plan": _plan(request.plan),
        "optimizer": _optimizer(request),
        "engine": {
            "name": engine,
            "variant": request.variant.to_dict(),
            "settings": compiler_settings(),
            "observer": request.observer is not None,
        },
        "versions": versions(),
        "processor": {**processor(), "capability": torch.backends.cpu.get_cpu_capability()},
        "precision": {
            "matmul": _matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        },
        "threads": request.variant.num_threads or torch.get_num_threads(),
        "extra": _plain_copy(extra or {}),
    }
    if writer.has_foreign:
        components["libraries"] = _libraries()
    components[EXPLAINED] = {
        "model": model,
        "places": writer.places,
        "modules": writer.modules,
        "defaults": writer.defaults,
        "shown_constants": [_shown(value) for value in graph.constant_values],
        "numbers": [_numbers(settings) for settings in request.groups],
        "compiler": compiler(),
    }
    return ExecutableKey(components, tuple(writer.opaque))


# -- the graph -------------------------------------------------------------------------------------------------------


class _GraphWriter:
    """Writes graphs as plain values, and what explains their operators in the same order."""

    def __init__(self) -> None:
        self.places: List[Optional[List[Any]]] = []
        self.modules: List[str] = []
        self.defaults: Dict[str, Dict[str, Any]] = {}
        self.opaque: List[str] = []
        self.has_foreign = False

    def operators_of(self, graph: torch.fx.Graph, *, is_body: bool = False) -> Tuple[List[Any], Any]:
        """Return the operators of a graph, each `[name, {argument: value}]`, and its results.

        A value of the graph is `{"%": number}`; arguments that enter the graph come first.
        """
        numbers = {node: number for number, node in enumerate(graph.nodes)}
        operators, results = [], None
        for node in graph.nodes:
            if node.op == "output":
                results = self._value(node.args, numbers)
            elif node.op != "placeholder":
                operators.append(self._operator(node, numbers))
                if not is_body:
                    place = node.meta.get("place")
                    self.places.append([place.file, place.line] if place is not None else None)
                    self.modules.append(node.meta.get("module_path", ""))
        return operators, results

    def _operator(self, node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int]) -> List[Any]:
        name, names = self._schema(node.target)
        arguments = {
            names[index] if index < len(names) else str(index): self._value(value, numbers)
            for index, value in enumerate(node.args)
        }
        arguments.update((key, self._value(value, numbers)) for key, value in node.kwargs.items())
        return [name, arguments]

    def _schema(self, target: Any) -> Tuple[str, Tuple[str, ...]]:
        """Return the name of an operator and those of its arguments."""
        if not isinstance(target, torch._ops.OpOverload):
            return (target, ()) if isinstance(target, str) else (self._function(target), ())
        found = _schemas.get(target)
        if found is None:
            found = _schemas[target] = _read_schema(target)
        if target.namespace not in _KNOWN_LIBRARIES and device_operator(target) is None:
            self.has_foreign = True
        self.defaults[found[0]] = found[2]
        return found[0], found[1]

    def _function(self, function: Any) -> str:
        if function is operator.getitem:
            return "getitem"
        module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
        if module.split(".")[0] not in _KNOWN_MODULES or not name or "<" in name:
            return self._opaque(function)
        return f"{module}.{name}"

    def _value(self, value: Any, numbers: Mapping[torch.fx.Node, int]) -> Any:
        if isinstance(value, torch.fx.Node):
            return {"%": numbers[value]}
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, (list, tuple)):
            return [self._value(item, numbers) for item in value]
        if isinstance(value, Body):
            operators, results = self.operators_of(value.graph, is_body=True)
            inputs = [_layout(node.meta["val"]) for node in value.graph.nodes if node.op == "placeholder"]
            return {"inputs": inputs, "operators": operators, "results": results}
        return self._other_value(value, numbers)

    def _other_value(self, value: Any, numbers: Mapping[torch.fx.Node, int]) -> Any:
        if isinstance(value, _NAMED):
            return {"torch": _name(value)}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, slice):
            return {"slice": [self._value(item, numbers) for item in (value.start, value.stop, value.step)]}
        if isinstance(value, dict):
            return {"items": [[str(key), self._value(item, numbers)] for key, item in value.items()]}
        if isinstance(value, torch.Tensor):
            return {"value": [*_layout(value), _hash(value)]}
        return self._opaque(value)

    def _opaque(self, value: Any) -> str:
        """Take note of a value that cannot be written down: what it computes is known to this process only."""
        kind = type(value)
        name = getattr(value, "__qualname__", "") or kind.__qualname__
        self.opaque.append(f"{getattr(value, '__module__', None) or kind.__module__}.{name}")
        return f"<{self.opaque[-1]} {os.urandom(8).hex()}>"


def _read_schema(target: torch._ops.OpOverload) -> Tuple[str, Tuple[str, ...], Dict[str, Any]]:
    """Return the name of an operator, the names of its arguments, and the plain values that these have by default."""
    arguments = target._schema.arguments
    defaults = {
        argument.name: argument.default_value
        for argument in arguments
        if argument.has_default_value() and isinstance(argument.default_value, (*_PLAIN, list))
    }
    plain = {name: value for name, value in defaults.items() if not isinstance(value, list) or _are_plain(value)}
    return str(target), tuple(argument.name for argument in arguments), plain


def _are_plain(values: Sequence[Any]) -> bool:
    return all(isinstance(value, _PLAIN) for value in values)


def _graph(graph: StepGraph, writer: _GraphWriter) -> Dict[str, Any]:
    operators, results = writer.operators_of(graph.graph)
    return {
        "mode": graph.mode,
        "has_loss": graph.has_loss,
        "loss_has_gradient": graph.loss_has_gradient,
        "operators": operators,
        "results": results,
        "mutated_buffers": sorted(graph.mutated_buffers),
        "mutated_parameters": sorted(graph.mutated_parameters),
        "mutated_inputs": sorted(graph.mutated_inputs),
    }


def _tensors(graph: StepGraph) -> Dict[str, List[Any]]:
    """Write down names, shapes, strides and types of what enters the graph and leaves it."""
    layouts = [_layout(node.meta["val"]) for node in graph.placeholders]
    named: Dict[str, List[Any]] = {}
    start = 0
    for kind in ("parameters", "buffers", "inputs"):
        infos: Sequence[TensorInfo] = getattr(graph, kind)
        own = layouts[start : start + len(infos)]
        named[kind] = [[info.name, *layout, info.requires_grad] for info, layout in zip(infos, own)]
        start += len(infos)
    named["constants"] = list(layouts[start:])
    named["outputs"] = [[list(info.shape), _name(info.dtype)] for info in graph.outputs]
    return named


def _layout(value: torch.Tensor) -> List[Any]:
    strides = list(value.stride()) if value.layout == torch.strided else _name(value.layout)
    return [list(value.shape), strides, _name(value.dtype)]


def _hash(value: torch.Tensor) -> str:
    flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    content: Any = flat.view(torch.uint8).numpy()
    return hashlib.sha256(content).hexdigest()[:32]


def _shown(value: torch.Tensor) -> Any:
    if value.numel() > _MAX_SHOWN or value.is_complex():
        return None
    numbers = value.flatten().tolist()
    if value.dtype.is_floating_point and value.dtype != torch.float64:
        numbers = [float(f"{number:.6g}") for number in numbers]  # as it was written: 0.1, not 0.10000000149
    return numbers if value.dim() else numbers[0]


def _name(value: Any) -> str:
    return str(value).replace("torch.", "")


# -- what it runs with -----------------------------------------------------------------------------------------------


def _plan(plan: CallPlan) -> Dict[str, Any]:
    return {field.name: _plan_value(getattr(plan, field.name)) for field in dataclasses.fields(plan)}


def _plan_value(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    # what adds up gradients over processes runs between programs: that it is there is what matters
    return dataclasses.asdict(value) if isinstance(value, ReplicaGroups) else True


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # so torch answers where it was set by `torch.backends`' newer attributes
        return str(torch.backends.mkldnn.matmul.fp32_precision)  # type: ignore[attr-defined]


def _optimizer(request: BuildRequest) -> List[Dict[str, Any]]:
    names = [list(of_group) for of_group in request.group_names]
    structures = [update_structure(settings) for settings in request.groups]
    return [
        {**structure, "parameters": names[index] if index < len(names) else []}
        for index, structure in enumerate(structures)
    ]


def _numbers(settings: Any) -> Dict[str, Any]:
    """Return the settings of a parameter group as they are now, for people to compare."""
    kind = getattr(settings, "kind", None)
    values = {name: value for name, value in sorted(vars(settings).items()) if isinstance(value, (bool, int, float))}
    return {**{name: str(value) if name == "kind" else value for name, value in values.items()}, "kind": _kind(kind)}


def _kind(kind: Any) -> str:
    return str(getattr(kind, "name", kind))


def _plain_copy(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain_copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_copy(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, _NAMED):
        return _name(value)
    raise TypeError(f"a key is made of plain values, not of {type(value).__name__}")


def _libraries() -> List[List[Any]]:
    """Describe the libraries and programs that operators of the user's own may come from."""
    from .sources import user_files  # only where it is needed: it looks through all modules

    paths = sorted({*map(str, torch.ops.loaded_libraries), *user_files(sys.modules)})
    return [[path, *_file_facts(path)] for path in paths]


def _file_facts(path: str) -> List[Any]:
    try:
        with open(path, "rb") as file:
            return [hashlib.sha256(file.read()).hexdigest()[:32]]
    except OSError:
        return []
