"""A captured graph as data: for the fingerprint of an executable, saved executables and exported graphs.

The record is JSON and does not depend on where the source lies or in which order memory was allocated, so that equal
graphs have equal records in every process.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from typing import Any, Dict, List, Mapping

import torch

from ...capture import StepGraph, TensorInfo
from ...support.atomic_files import write_atomically
from .._logging import cpp_log, cpp_log_enabled

__all__ = ["GRAPH_FORMAT", "export_graph", "fingerprint", "graph_record", "trace_graph"]

GRAPH_FORMAT = 2

_PROTO_FILE = "POPTORCH_EXPORT_PROTO_FILE"
_MAX_LINES = "POPTORCH_MAX_GRAPH_LEN"
_DEFAULT_MAX_LINES = 10
_AS_BINARY = "POPTORCH_EXPORT_PROTO_AS_BINARY"


def graph_record(graph: StepGraph) -> Dict[str, Any]:
    """Return `graph` as JSON: what enters it, its operators with their arguments, what leaves it.

    Of values there are only the hashes of the constants, which belong to the program.
    """
    names = _numbered(graph.graph)
    return {
        "format": GRAPH_FORMAT,
        "mode": graph.mode,
        "parameters": [_tensor(info) for info in graph.parameters],
        "buffers": [_tensor(info) for info in graph.buffers],
        "inputs": [_tensor(info) for info in graph.inputs],
        "constants": [
            [*_tensor(info, name=""), _hash(value)] for info, value in zip(graph.constants, graph.constant_values)
        ],
        "operators": _operators(graph.graph, names),
        "outputs": [_tensor(info, name="") for info in graph.outputs],
        "results": _results(graph.graph, names),
        "has_loss": graph.has_loss,
        "mutated_buffers": sorted(graph.mutated_buffers),
        "mutated_inputs": sorted(graph.mutated_inputs),
    }


def fingerprint(record: Mapping[str, Any], *, settings: Any = None) -> str:
    """Return the hash of a graph's record and of the settings that it runs with.

    >>> fingerprint({"a": 1}) == fingerprint({"a": 1}), fingerprint({"a": 1}) == fingerprint({"a": 2})
    (True, False)
    """
    return hashlib.sha256(json.dumps([record, settings], sort_keys=True, default=str).encode()).hexdigest()


def export_graph(graph: StepGraph) -> None:
    """Write `graph` to the file that ``POPTORCH_EXPORT_PROTO_FILE`` names; nothing happens without it.

    It is text with a line for each operator, or with ``POPTORCH_EXPORT_PROTO_AS_BINARY`` the compressed record.
    """
    name = os.environ.get(_PROTO_FILE)
    if not name:
        return
    if _AS_BINARY in os.environ:
        content = zlib.compress(json.dumps(graph_record(graph)).encode())
    else:
        content = f"# {graph.mode} graph of the simulator, format {GRAPH_FORMAT}\n{graph}\n".encode()
    write_atomically(name, content)


def trace_graph(graph: StepGraph) -> None:
    """Log the last lines of `graph` at trace level: ``POPTORCH_MAX_GRAPH_LEN`` says how many, all if not positive."""
    if not cpp_log_enabled("trace"):
        return
    text = os.environ.get(_MAX_LINES, "")
    most = int(text) if text.lstrip("-").isdigit() else _DEFAULT_MAX_LINES
    lines = str(graph).splitlines()
    for line in lines[-most:] if most > 0 else lines:
        cpp_log("trace", line)


def _tensor(info: TensorInfo, *, name: Any = None) -> List[Any]:
    return [info.name if name is None else name, list(info.shape), str(info.dtype), info.requires_grad]


def _hash(value: torch.Tensor) -> str:
    return hashlib.sha256(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def _numbered(graph: torch.fx.Graph) -> Dict[torch.fx.Node, str]:
    return {node: f"%{number}" for number, node in enumerate(graph.nodes)}


def _operators(graph: torch.fx.Graph, names: Mapping[torch.fx.Node, str]) -> List[Any]:
    return [_operator(node, names) for node in graph.nodes if node.op not in ("placeholder", "output")]


def _results(graph: torch.fx.Graph, names: Mapping[torch.fx.Node, str]) -> List[Any]:
    return [_argument(node.args, names) for node in graph.nodes if node.op == "output"]


def _operator(node: torch.fx.Node, names: Mapping[torch.fx.Node, str]) -> List[Any]:
    kwargs = {key: _argument(value, names) for key, value in sorted(node.kwargs.items())}
    target = str(node.target) if isinstance(node.target, (str, torch._ops.OpOverload)) else _function_name(node.target)
    return [names[node], target, _argument(node.args, names), kwargs]


def _function_name(target: Any) -> str:
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', type(target).__qualname__)}"


def _argument(value: Any, names: Mapping[torch.fx.Node, str]) -> Any:
    if isinstance(value, torch.fx.Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        return [_argument(item, names) for item in value]
    if isinstance(value, dict):
        return {str(key): _argument(item, names) for key, item in value.items()}
    if isinstance(value, float):
        return value.hex()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, complex, slice)):
        return str(value)
    body = getattr(value, "graph", None)  # of a loop or a branch
    if isinstance(body, torch.fx.Graph):
        inner = _numbered(body)
        return {"operators": _operators(body, inner), "results": _results(body, inner)}
    return _function_name(type(value))
