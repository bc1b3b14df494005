"""Describe a step as plain data: its inputs, its operators with results, bytes and operations, and sums over all.

This is the content of the dump as JSON. For people there are a text with a line for each operator, and a drawing in
Graphviz's language, in which inputs are ellipses, operators are boxes, and arrows carry types and shapes.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence

import torch

from ...capture import StepGraph
from ...capture.graph_flow import output_nodes, tensor_memory
from ...capture.plain_values import dtype_name
from ...capture.subgraphs import bodies_of
from ...diagnostics import Place
from ...engines.recompute.costs import predict_cost
from ...engines.recompute.flop_counts import count_node_flops
from ...engines.recompute.recomputation import order_computation
from ...executables.exported_step import ExportedStep
from ...options import ComputationOrder
from ...torch_insides.operators import OpOverload

__all__ = ["SCHEMA", "Facts", "as_dot", "as_json", "as_text", "describe_step", "format_tensor"]

SCHEMA = "porting.graph/1"
"""What the key `schema` says."""

Facts = Dict[str, Any]
"""Plain values by name: a step, an operator or a tensor."""


def as_json(step: ExportedStep) -> bytes:
    """Write the result of `describe_step` as JSON."""
    return (json.dumps(describe_step(step), indent=1) + "\n").encode()


def describe_step(step: ExportedStep) -> Facts:
    """Describe the graph of `step` in its computation order.

    Keys: `schema`, `title`, `mode`, `batch`, `precision`, `computation_order`, `entering` (tensors with a `kind`),
    `operators` (in the order they run; `inputs` and `outputs` name values, `new_bytes` is the memory that is filled
    anew, `bodies` are lists of operators of a segment, loop or branch), `returned`, `sums`.

    Of the sums, `forward_peak_bytes` counts values of the forward pass that are still to be read, if each is freed
    after its last use; `kept_bytes` are what waits for the backward pass, None where that cannot be predicted.
    """
    graph = order_computation(step.graph, ComputationOrder.of(step.computation_order))
    operators = list(_describe_operators(graph.graph.nodes))
    entering = [
        {**_describe_tensor(node.name, node.meta["val"]), "kind": info.kind}
        for info, node in zip(graph.entering, graph.placeholders)
    ]
    kept: Optional[int] = 0
    recomputed: Optional[int] = 0
    if graph.has_loss:
        try:
            cost = predict_cost(graph, step.computation_order, plain=step.graph)
            kept, recomputed = cost.kept_bytes, cost.recomputed_flops
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            kept = recomputed = None  # an operator that reads values, such as a branch, has no prediction
    return {
        "schema": SCHEMA,
        "title": f"{graph.mode} step{f' of {step.target}' if step.target else ''}, {step.batch}",
        "mode": step.graph.mode,
        "batch": dataclasses.asdict(step.batch),
        "precision": step.precision,
        "computation_order": step.computation_order,
        "entering": entering,
        "operators": operators,
        "returned": [node.name for node in output_nodes(graph.graph)],
        "sums": {
            "forward_flops": sum(item["flops"] for item in operators),
            "forward_peak_bytes": _count_peak_bytes(graph),
            "kept_bytes": kept,
            "recomputed_flops": recomputed,
            "state_bytes": sum(tensor["bytes"] for tensor in entering if tensor["kind"] in ("parameter", "buffer")),
        },
    }


def format_tensor(tensor: Facts) -> str:
    """Write type and shape, as in `float32[8, 2]`.

    >>> format_tensor({"name": "x", "shape": [8, 2], "dtype": "float32", "bytes": 64})
    'float32[8, 2]'
    """
    return f"{tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]"


def _describe_tensor(name: str, value: torch.Tensor) -> Facts:
    num_bytes = value.numel() * value.element_size()
    return {"name": name, "shape": list(value.shape), "dtype": dtype_name(value.dtype), "bytes": num_bytes}


def _describe_operators(nodes: Iterable[torch.fx.Node]) -> Iterator[Facts]:
    filled = set()
    for node in nodes:
        if node.op == "placeholder":
            filled.add(tensor_memory(node))
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        # an operator with several results has them in the nodes that unpack it
        parts = [node, *(user for user in node.users if user.target is operator.getitem)]
        results = [part for part in parts if isinstance(part.meta.get("val"), torch.Tensor)]
        results = results[:1] if results[:1] == [node] else results
        fresh = {tensor_memory(result): result.meta["val"] for result in results if tensor_memory(result) not in filled}
        filled.update(fresh)
        target: Any = node.target
        name = str(target) if isinstance(target, OpOverload) else str(target.__name__)
        place = node.meta.get("place")
        yield {
            "name": node.name,
            "operator": node.meta.get("operator", None) or name,
            "inputs": list(dict.fromkeys(used.name for used in node.all_input_nodes)),
            "outputs": [_describe_tensor(result.name, result.meta["val"]) for result in results],
            "new_bytes": sum(value.untyped_storage().nbytes() for value in fresh.values()),
            "flops": count_node_flops(node),
            "module": node.meta.get("module_path", ""),
            "place": None if place is None else dataclasses.asdict(place),
            "bodies": [list(_describe_operators(body.graph.nodes)) for body in bodies_of(node)],
        }


def _count_peak_bytes(graph: StepGraph) -> int:
    """Walk through the forward pass and count references to memory; what enters the graph is not counted."""
    nodes = list(graph.graph.nodes)
    entering = {tensor_memory(node) for node in graph.placeholders}
    last_use = {tensor_memory(used): at for at, node in enumerate(nodes) for used in (node, *node.all_input_nodes)}
    alive: Dict[int, int] = {}
    peak = 0
    for position, node in enumerate(nodes):
        memory, value = tensor_memory(node), node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and memory not in entering:
            alive[memory] = value.untyped_storage().nbytes()
        peak = max(peak, sum(alive.values()))
        alive = {memory: size for memory, size in alive.items() if last_use[memory] > position}
    return peak


# -- for people --------------------------------------------------------------------------------------------------------

_COLOURS = {"parameter": "#cfe2f3", "buffer": "#d9ead3", "input": "#fff2cc", "constant": "#eeeeee"}


def as_text(step: ExportedStep) -> bytes:
    """List the graph of `step`, and sums over it."""
    facts = describe_step(step)
    sums, entering = facts["sums"], facts["entering"]
    lines = [f"# {facts['title']}"]
    lines += [f"{t['kind']:10} {t['name']}: {format_tensor(t)}  {_format_count(t['bytes'], 'B')}" for t in entering]
    lines += _iter_operators(facts["operators"], indent="")
    kept, again = _format_count(sums["kept_bytes"], "B"), _format_count(sums["recomputed_flops"], "FLOP")
    lines += [
        f"return     {', '.join(facts['returned'])}",
        f"# {len(facts['operators'])} operators, {_format_count(sums['forward_flops'], 'FLOP')} forward",
        f"# parameters and buffers {_format_count(sums['state_bytes'], 'B')}",
        f"# peak of the forward pass alone {_format_count(sums['forward_peak_bytes'], 'B')}",
        f"# kept for the backward pass {kept}, computed again for it {again}",
    ]
    if sums["kept_bytes"] is None:
        lines.append("# incomplete: what waits for the backward pass depends on values")
    return ("\n".join(lines) + "\n").encode()


def as_dot(step: ExportedStep) -> bytes:
    """Draw the graph of `step`; operators of bodies (segments, loops, branches) stand in a frame of their own."""
    facts = describe_step(step)
    entering, operators, title = facts["entering"], facts["operators"], _quote_text(facts["title"])
    lines = [f"digraph {title} {{", "  rankdir=TB;", '  node [fontname="Helvetica", fontsize=10];', f"  label={title};"]
    for tensor in entering:
        colour = _COLOURS.get(tensor["kind"], "#ffffff")
        label = _quote_text(f"{tensor['name']}\n{format_tensor(tensor)}")
        lines.append(
            f'  {_quote_text(tensor["name"])} [shape=ellipse, style=filled, fillcolor="{colour}", label={label}];'
        )
    lines += _draw_operators(operators, indent="  ")
    # by name of a value: the node that has it, and what the arrow says
    values = {tensor["name"]: (tensor["name"], format_tensor(tensor)) for tensor in entering}
    values.update((t["name"], (item["name"], format_tensor(t))) for item in operators for t in item["outputs"])
    for item in operators:
        for name in item["inputs"]:
            source, text = values.get(name, (name, ""))
            lines.append(f"  {_quote_text(source)} -> {_quote_text(item['name'])} [label={_quote_text(text)}];")
    for number, name in enumerate(facts["returned"]):
        lines.append(f"  {_quote_text(f'return {number}')} [shape=plaintext];")
        lines.append(f"  {_quote_text(values.get(name, (name, ''))[0])} -> {_quote_text(f'return {number}')};")
    return ("\n".join([*lines, "}"]) + "\n").encode()


def _draw_operators(operators: Sequence[Facts], *, indent: str, prefix: str = "") -> Iterator[str]:
    for item in operators:
        sums = f"{_format_count(item['new_bytes'], 'B')}, {_format_count(item['flops'], 'FLOP')}"
        place = [str(Place(**item["place"]))] if item["place"] else []
        label = _quote_text("\n".join([item["operator"], item["module"] or "forward", sums, *place]))
        name = f"{prefix}{item['name']}"
        yield f"{indent}{_quote_text(name)} [shape=box, label={label}];"
        for number, body in enumerate(item["bodies"]):
            yield f"{indent}subgraph {_quote_text(f'cluster {name} {number}')} {{"
            yield f"{indent}  label={_quote_text(f'in {name}')}; style=dashed;"
            yield from _draw_operators(body, indent=indent + "  ", prefix=f"{name}/{number}/")
            yield f"{indent}}}"
    # the arrows of the whole step carry types and shapes, which `as_dot` knows
    makers = {tensor["name"]: item["name"] for item in operators for tensor in item["outputs"]}
    for item in operators if prefix else ():
        for used in dict.fromkeys(makers[name] for name in item["inputs"] if name in makers):
            yield f"{indent}{_quote_text(prefix + used)} -> {_quote_text(prefix + item['name'])};"


def _quote_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _format_count(number: Optional[int], unit: str) -> str:
    """Write a count in the decimal multiple that keeps it short.

    >>> _format_count(1536, "B"), _format_count(2_000_000, "FLOP"), _format_count(7, "B"), _format_count(None, "B")
    ('1.5 kB', '2.0 MFLOP', '7 B', 'unknown')
    """
    if number is None:
        return "unknown"
    value, prefix = float(number), ""
    for following in ("k", "M", "G", "T"):
        if value < 1000:
            break
        value, prefix = value / 1000, following
    return f"{value:.1f} {prefix}{unit}" if prefix else f"{number} {unit}"


def _iter_operators(operators: Sequence[Facts], *, indent: str) -> Iterator[str]:
    for item in operators:
        results = ", ".join(map(format_tensor, item["outputs"])) or "nothing"
        place = Place(**item["place"]) if item["place"] else ""
        yield (
            f"{indent}{item['name']} = {item['operator']}({', '.join(item['inputs'])}) -> {results}  "
            f"{_format_count(item['new_bytes'], 'B')}  {_format_count(item['flops'], 'FLOP')}  "
            f"[{item['module'] or 'forward'}]  {place}"
        ).rstrip()
        for body in item["bodies"]:
            yield from _iter_operators(body, indent=indent + "    ")
