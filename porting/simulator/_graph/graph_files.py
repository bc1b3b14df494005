"""Write the compiled graph to files and logs: its record, its export, its log lines, and PopART's listing.

The record is JSON and does not depend on where the source lies or in which order memory was allocated, so that equal
graphs have equal records in every process. The listing is JSON, too. Its `maingraph` has the operators in the order of
a run: those of `forward`, in training then those of the backward pass and of the optimizer. Each has `type`, `name`
(name scope and type), `id`, `inputs` and `outputs` (name, type and shape), `attributes` as text, `block`, `stage`,
`phase`, `ipu` and `location`. Convolutions of one `MultiConv` are one operator. Further lists are the bodies of loops
and branches. Operators that only compiling adds - copies, reductions over replicas, recomputation - are not in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set

import torch

from ...capture import StepGraph
from ...capture.graph_flow import written_nodes
from ...capture.graph_identity import identify_graph
from ...capture.plain_values import dtype_name
from ...capture.subgraphs import bodies_of
from ...engines.recompute.values_for_backward import collect_nodes_with_gradient, list_trained_parameters
from ...support.atomic_files import write_atomically
from ...torch_insides.operators import OpOverload, read_schema
from .._logging import cpp_log, cpp_log_enabled
from .._scopes.executed_operators import (
    is_convolution,
    is_mark,
    label_operator,
    list_executed_operators,
    list_operands,
    list_results,
)
from .compiler_names import list_gradient_types, list_operator_types, name_tensors

__all__ = ["GRAPH_FORMAT", "export_graph", "hash_record", "make_graph_record", "render_ir", "trace_graph"]

# raised with each change of what the record holds: executables of another format are refused, not misread
GRAPH_FORMAT = 3

_TYPES = {torch.float16: "FLOAT16", torch.float32: "FLOAT", torch.int32: "INT32", torch.bool: "BOOL"}


def make_graph_record(graph: StepGraph) -> Dict[str, Any]:
    """Return `graph` as JSON: its inputs, its operators, its outputs, and the hashes of its constants."""
    identity = identify_graph(graph)
    return {"format": GRAPH_FORMAT, **identity.tensors, **identity.graph, "constants": identity.constants}


def hash_record(record: Mapping[str, Any], *, settings: Optional[Mapping[str, Any]] = None) -> str:
    """Return the hash of a graph's record and of the settings that it runs with.

    >>> hash_record({"a": 1}) == hash_record({"a": 1}), hash_record({"a": 1}) == hash_record({"a": 2})
    (True, False)
    """
    return hashlib.sha256(json.dumps([record, settings], sort_keys=True, default=str).encode()).hexdigest()


def export_graph(graph: StepGraph) -> None:
    """Write `graph` to the file that ``POPTORCH_EXPORT_PROTO_FILE`` names, as text or as its compressed record."""
    name = os.environ.get("POPTORCH_EXPORT_PROTO_FILE")
    if not name:
        return
    if "POPTORCH_EXPORT_PROTO_AS_BINARY" in os.environ:
        content = zlib.compress(json.dumps(make_graph_record(graph)).encode())
    else:
        content = f"# {graph.mode} graph of the simulator, format {GRAPH_FORMAT}\n{graph}\n".encode()
    write_atomically(name, content)


def trace_graph(graph: StepGraph) -> None:
    """Log the last lines of `graph` at trace level: ``POPTORCH_MAX_GRAPH_LEN`` says how many, all if not positive."""
    # asked first: the text of a large graph is costly
    if not cpp_log_enabled("trace"):
        return
    text = os.environ.get("POPTORCH_MAX_GRAPH_LEN", "")
    most = int(text) if text.lstrip("-").isdigit() else 10
    lines = str(graph).splitlines()
    for line in lines[-most:] if most > 0 else lines:
        cpp_log("trace", line)


def render_ir(graph: StepGraph, *, update_types: Sequence[str] = ()) -> str:
    """Return the JSON text of `graph`; `update_types` are the operators that update one parameter in training."""
    names = {node: name for name, node in name_tensors(graph).items()}
    operators = list(_make_forward_entries(graph.graph, names, collect_nodes_with_gradient(graph)))
    # The simulator differentiates with torch; these are the compiler's operators for each gradient.
    backward = [entry for operator in reversed(operators) for entry in _make_backward_entries(operator)]
    graphs = {"maingraph": [*operators, *backward, *_make_update_entries(graph, update_types)]}
    graphs.update(_collect_body_graphs(graph.graph, names))
    for entries in graphs.values():
        for number, entry in enumerate(entries):
            entry["id"] = number
            del entry["has_gradient"]
    return json.dumps(graphs, separators=(",", ":"), default=str)


# The attributes that the arguments of marks become.
_MARKED = {
    "set_available_memory": ("__available_memory",),
    "set_matmul_serialization": ("serialize_matmul_mode", "serialize_matmul_factor", "serialize_matmul_keep_precision"),
}

Entry = Dict[str, Any]


def _collect_body_graphs(graph: torch.fx.Graph, names: Dict[torch.fx.Node, str]) -> Dict[str, List[Entry]]:
    """Return the operators of each body of a loop or branch, by the name of its operator's result and a number."""
    found: Dict[str, List[Entry]] = {}
    for node in graph.nodes:
        for number, body in enumerate(bodies_of(node)):
            key = f"{names.get(list_results(node)[0], node.name)}_body_{number}"
            found[key] = list(_make_forward_entries(body.graph, {}, set()))
            found.update({f"{key}/{inner}": entries for inner, entries in _collect_body_graphs(body.graph, {}).items()})
    return found


def _make_forward_entries(
    graph: torch.fx.Graph, names: Dict[torch.fx.Node, str], with_gradient: Set[torch.fx.Node]
) -> Iterator[Entry]:
    names = dict(names)
    operators = list_executed_operators(graph)
    multi_convs: Dict[int, List[torch.fx.Node]] = {}
    for node in operators:
        if is_convolution(node) and "multi_conv" in node.meta:
            multi_convs.setdefault(node.meta["multi_conv"]["number"], []).append(node)
    members = {node: group for group in multi_convs.values() for node in group}
    for node in operators:
        if node not in members:
            yield from _make_operator_entries(node, names, node in with_gradient)
        elif node is members[node][-1]:  # all that its convolutions work on is there by now
            has_gradient = any(member in with_gradient for member in members[node])
            yield _make_multi_entry(members[node], names, has_gradient)
        # what follows reads the result of an in-place operator, although its node is the old one's
        for changed in written_nodes(node):
            names[changed] = names.get(node, node.name)


def _make_operator_entries(node: torch.fx.Node, names: Dict[torch.fx.Node, str], has_gradient: bool) -> Iterator[Entry]:
    inputs = [_describe_tensor(item, names) for item in list_operands(node)]
    outputs = [_describe_tensor(result, names) for result in list_results(node)]
    *first, last = list_operator_types(node)
    for kind in first:  # a product before a sum, which takes the last operand
        product = [{"name": f"{node.meta.get('name_scope', '')}{kind}:0/{node.name}"}]
        yield _make_entry(kind, node, inputs[:-1], product, _collect_attributes(node), has_gradient)
        inputs = [*product, inputs[-1]]
    yield _make_entry(last, node, inputs, outputs, _collect_attributes(node), has_gradient)


def _make_multi_entry(members: Sequence[torch.fx.Node], names: Dict[torch.fx.Node, str], has_gradient: bool) -> Entry:
    first = members[0]
    inputs = [_describe_tensor(item, names) for node in members for item in list_operands(node)]
    outputs = [_describe_tensor(node, names) for node in members]
    settings = {name: _to_text(value) for name, value in first.meta["multi_conv"].items() if name != "number"}
    return _make_entry("MultiConv", first, inputs, outputs, {**_collect_attributes(first), **settings}, has_gradient)


def _make_entry(
    kind: str,
    node: torch.fx.Node,
    inputs: List[Entry],
    outputs: List[Entry],
    attributes: Dict[str, Any],
    has_gradient: bool,
) -> Entry:
    return {
        "type": kind,
        "name": f"{node.meta.get('name_scope', '')}{kind}",
        "inputs": inputs,
        "outputs": outputs,
        "attributes": attributes,
        "block": node.meta.get("block", ""),
        "stage": node.meta.get("stage", 0),
        "phase": node.meta.get("phase", 0),
        "ipu": node.meta.get("ipu", 0),
        "location": node.meta.get("source_location"),
        "has_gradient": has_gradient,
    }


def _describe_tensor(node: torch.fx.Node, names: Dict[torch.fx.Node, str]) -> Entry:
    value = node.meta.get("val")
    entry: Entry = {"name": names.get(node, node.name)}
    if isinstance(value, torch.Tensor):
        entry["type"] = _TYPES.get(value.dtype, dtype_name(value.dtype).upper())
        entry["shape"] = list(value.shape)
    return entry


def _collect_attributes(node: torch.fx.Node) -> Dict[str, Any]:
    """Return the settings of an operator as text: its arguments that are no tensors, and the user's attributes."""
    attributes: Dict[str, Any] = {}
    if isinstance(node.target, OpOverload):
        for argument, value in zip(read_schema(node.target).arguments, node.args):
            if not _holds_tensors(value):
                attributes[argument.name] = _to_text(value)
        attributes.update({name: _to_text(value) for name, value in node.kwargs.items() if not _holds_tensors(value)})
    if node.meta.get("ipu") is not None:
        attributes["__ipu_number"] = _to_text(node.meta["ipu"])
        attributes["__pipeline_stage"] = _to_text(node.meta["stage"])
        attributes["__execution_phase"] = _to_text(node.meta["phase"])
    for result in list_results(node):
        attributes.update(_read_marks(result))
    for name, entries in node.meta.get("attributes", {}).items():
        attributes[name] = {key: _to_text(value) for key, value in entries.items()}
    return attributes


def _read_marks(tensor: torch.fx.Node) -> Dict[str, str]:
    """Return the settings of an operator that marks on its result contain."""
    found: Dict[str, str] = {}
    for user in tensor.users:
        if is_mark(user):
            names = _MARKED.get(label_operator(user), ())
            found.update(zip(names, map(_to_text, user.args[1:])))
            found.update(_read_marks(user))
    return found


def _holds_tensors(value: object) -> bool:
    return any(isinstance(item, torch.fx.Node) for item in (value if isinstance(value, (tuple, list)) else [value]))


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _make_backward_entries(operator: Entry) -> Iterator[Entry]:
    for kind in list_gradient_types(operator["type"]) if operator["has_gradient"] else ():
        scope = operator["name"][: -len(operator["type"])]
        gradients = [{**tensor, "name": f"Gradient___{tensor['name']}"} for tensor in operator["outputs"]]
        results = [{**tensor, "name": f"Gradient___{tensor['name']}"} for tensor in operator["inputs"]]
        yield {**operator, "type": kind, "name": f"{scope}{kind}", "inputs": gradients, "outputs": results}


def _make_update_entries(graph: StepGraph, update_types: Sequence[str]) -> Iterator[Entry]:
    trained = set(list_trained_parameters(graph))
    for info, node in zip(graph.parameters, graph.placeholders):
        if info.name not in trained:
            continue
        # where the parameter is used: the update runs on the same IPU
        place = next((user for user in node.users if user.meta.get("ipu") is not None), node)
        tensor = _describe_tensor(node, {node: info.name})
        inputs = [tensor, {**tensor, "name": f"Gradient___{info.name}"}]
        outputs = [{**tensor, "name": f"UpdatedVar___{info.name}"}]
        for kind in update_types:
            entry = _make_entry(kind, place, inputs, outputs, {}, False)
            yield {**entry, "name": f"{kind}/{info.name}", "location": None}
